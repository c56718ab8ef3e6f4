//! Tests of what only this provider has.
