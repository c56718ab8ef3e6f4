//! Library buffers that come and go.

use crate::rows::Table;
use crate::support::{Deployment, holds_again, settled};
use reclane::engine::{Request, Rows, Target};

/// More than a client may have at a time, one after the other; the shards let go of each.
#[test]
fn closed_buffers_make_room_here_and_at_the_shards() {
    let mut deployment = Deployment::start(2, &[("rdma-put-v2-transfer-mode", "read")]);
    let client = deployment.client();
    let table = Table::open(&client, "t", 16);
    table.fill(&client);
    let kept = client.allocate_buffer(4096).expect("a buffer");
    let before: Vec<_> = deployment.servers.iter().map(settled).collect();
    for round in 0..1100_u64 {
        let buffer = client.allocate_buffer(8192).expect("room for one more");
        let keys = [round, round + 1, round + 2];
        let wanted = table.rows(&keys, 7.0);
        // SAFETY: the buffer has room for the rows, and no request names it now.
        unsafe { buffer.data().cast::<f32>().copy_from_nonoverlapping(wanted.as_ptr(), wanted.len()) };
        let rows = Rows::Buffer { region: &buffer, offset_bytes: 0 };
        // SAFETY: what the request points to outlives the call, which returns when it is over.
        unsafe { client.call(&Request::Put { table: table.tag, keys: &keys, rows }) }.expect("a PUT");
        let target = Target::Buffer { region: &buffer, offset_bytes: 4096 };
        // SAFETY: as above.
        unsafe { client.call(&Request::Get { table: table.tag, keys: &keys[..1], target }) }.expect("a GET");
        // SAFETY: the rows are there, and nobody writes them any more.
        let got = unsafe { core::slice::from_raw_parts(buffer.data().add(4096).cast::<f32>(), 16) };
        assert_eq!(got, &wanted[..16]);
    }
    for (server, before) in deployment.servers.iter_mut().zip(&before) {
        holds_again(server, before);
    }
    let clone = kept.clone();
    drop(kept);
    drop(client);
    // A buffer outlives its client, and giving it back then is no one's business.
    // SAFETY: the buffer's first byte; nobody else uses it.
    assert_eq!(unsafe { clone.data().read() }, 0);
}
