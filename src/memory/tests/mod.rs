//! Over fabrics.
