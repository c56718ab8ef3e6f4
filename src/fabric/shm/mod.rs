//! The shared-memory provider: processes of one host.
