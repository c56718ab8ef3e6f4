//! Ranks of one job: regions, one-sided operations, what happens when one of them is killed.

mod child;
mod deaths;
mod holds;
mod numbers;
mod operations;
mod support;

#[test]
fn child() {
    child::play();
}
