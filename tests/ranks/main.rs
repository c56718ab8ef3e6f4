//! Ranks of one job: regions, one-sided operations, what happens when one of them is killed.

mod checkpoints;
mod child;
mod deaths;
mod holds;
mod kills;
mod numbers;
mod operations;
mod support;
mod suspends;

#[test]
fn child() {
    child::play();
}
