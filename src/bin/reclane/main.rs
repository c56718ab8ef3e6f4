//! The `reclane` command.

fn main() {}
