//! Micro benchmarks of the hot path.

fn main() {}
