//! What becomes of a deployment when its processes are killed, stopped, refused, or come and go while others work.
//!
//! Servers and clients that are to die are processes of their own: this program runs itself again as `child`, which does
//! nothing otherwise. Nothing here bounds time from above, except [`support::PATIENCE`], which ends a test that hangs.

mod buffers;
mod child;
mod idle;
mod kills;
mod lives;
mod outcomes;
mod own_reads;
mod refusals;
mod restart;
mod rows;
mod stress;
mod support;
mod traffic;

/// The other processes of a test.
#[test]
fn child() {
    child::play();
}
