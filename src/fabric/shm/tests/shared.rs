//! One process: what its queue pairs share and what they do not.

use super::super::{Shm, ShmOptions};
use super::open;
use crate::error::Status;
use crate::fabric::conformance::pair::{CONFIG, End, PATIENCE, Pair, until};
use crate::fabric::{Access, Fabric, Qp, QpConfig, QpState, Region, SharedFile, WorkOp};
use crate::options::HugePages;
use crate::sync::Arc;

#[test]
fn a_region_exposed_through_many_queue_pairs_is_mapped_once() {
    let (left, right) = (Arc::new(open()), Arc::new(open()));
    let memory = right.allocate(1 << 20, Access::ALL).expect("region");
    let pairs: Vec<Pair<Shm>> = (0..4)
        .map(|_| Pair { a: End::new(Arc::clone(&left)), b: End::exposing(Arc::clone(&right), memory.clone()) })
        .collect();
    let windows: Vec<_> = pairs
        .iter()
        .map(|pair| {
            pair.connect();
            pair.a.qp.window(pair.b.at(0), 1 << 20, Access::ALL).expect("window")
        })
        .collect();
    assert!(windows.iter().all(|window| *window == windows[0]));
    // The mapping lives as long as one of them.
    let mut pairs = pairs;
    let last = pairs.pop().expect("pair");
    drop(pairs);
    last.works();
    assert_eq!(last.a.qp.window(last.b.at(0), 8, Access::ALL), Some(windows[0]));
}

#[test]
fn what_is_lent_can_be_read_and_ends_with_its_owner() {
    let (left, right) = (Arc::new(open()), Arc::new(open()));
    let file = SharedFile::new(16 << 20).expect("a file");
    // SAFETY: the file is mapped for writing, and nobody else has it yet.
    unsafe { file.base().as_ptr().write(7) };
    let lent = right.lend(&file).expect("lent");
    let pair = Pair { a: End::new(left), b: End::exposing(right, lent) };
    pair.connect();
    let Pair { a, b } = pair;
    assert_eq!(a.qp.window(b.at(0), 8, Access::REMOTE_WRITE), None);
    let place = a.qp.window(b.at(0), 16 << 20, Access::REMOTE_READ).expect("a window");
    // SAFETY: the window stays mapped as long as the queue pair.
    let first = || unsafe { place.as_ptr().read_volatile() };
    assert_eq!(first(), 7);
    drop(b);
    // The file has its bytes still; who was lent it has let it go.
    until("the file is let go of", || (first() == 0).then_some(()));
    // SAFETY: mapped as long as the file.
    assert_eq!(unsafe { file.base().as_ptr().read() }, 7);
}

#[test]
fn a_window_stays_the_same_over_reset_and_reconnect() {
    let pair = Pair::connected(&open);
    let before = pair.a.qp.window(pair.b.at(0), 8, Access::ALL);
    for end in [&pair.a, &pair.b] {
        end.qp.modify(QpState::Err).expect("err");
        end.qp.modify(QpState::Reset).expect("reset");
    }
    assert_eq!(pair.a.qp.window(pair.b.at(0), 8, Access::ALL), None);
    pair.connect();
    assert!(before.is_some());
    assert_eq!(pair.a.qp.window(pair.b.at(0), 8, Access::ALL), before);
}

#[test]
fn another_generation_is_refused() {
    let pair = Pair::new(&open);
    let config = QpConfig { generation: CONFIG.generation + 1, ..CONFIG };
    let cq = pair.a.fabric.create_cq(16).expect("completion queue");
    let other = pair.a.fabric.create_qp(&config, &[], &cq, &cq, None).expect("queue pair");
    let refused = other.connect(&pair.b.qp.address(), PATIENCE).unwrap_err();
    assert_eq!(refused.status, Status::ShardUnreachable);
    assert!(refused.message.contains("generation"), "{refused}");
    pair.connect();
}

#[test]
fn a_queue_pair_has_one_peer_only() {
    let pair = Pair::connected(&open);
    let third = End::<Shm>::new(Arc::new(open()));
    let refused = third.qp.connect(&pair.b.qp.address(), PATIENCE).unwrap_err();
    assert_eq!((refused.status, third.qp.state()), (Status::ShardUnreachable, QpState::Reset));
    pair.works();
    // Fetched by one peer, it does not connect to another.
    let (fetched, stranger) = (End::<Shm>::new(Arc::new(open())), End::<Shm>::new(Arc::new(open())));
    third.qp.connect(&fetched.qp.address(), PATIENCE).expect("connect");
    let refused = fetched.qp.connect(&stranger.qp.address(), PATIENCE).unwrap_err();
    assert_eq!(refused.status, Status::ShardUnreachable);
    fetched.qp.connect(&third.qp.address(), PATIENCE).expect("the right one");
}

#[test]
fn a_process_can_be_its_own_peer() {
    let fabric = Arc::new(open());
    let pair = Pair { a: End::new(Arc::clone(&fabric)), b: End::new(fabric) };
    pair.connect();
    pair.works();
}

#[test]
fn a_closed_fabric_is_a_peer_that_is_gone() {
    let Pair { a, b } = Pair::connected(&open);
    let End { fabric, qp, .. } = b;
    // The queue pair keeps the fabric's thread: the connection outlives the handle.
    drop(fabric);
    a.run(
        WorkOp::FetchAdd(1),
        8,
        crate::fabric::RemoteAddr { address: b.memory.address().iova, rkey: b.memory.address().rkey },
    );
    assert_eq!((a.qp.state(), qp.state()), (QpState::Rts, QpState::Rts));
    // Closed in order, it says goodbye first.
    drop(qp);
    until("ERR", || (a.qp.state() == QpState::Err).then_some(()));
    assert!(a.qp.cause().is_some_and(|cause| !cause.peer_gone));
}

#[test]
fn huge_pages_are_used_or_refused_as_asked() {
    for huge_pages in [HugePages::Off, HugePages::Auto, HugePages::On] {
        let fabric = Shm::open(ShmOptions { huge_pages, ..ShmOptions::default() }).expect("shm opens");
        match fabric.allocate(3 << 20, Access::ALL) {
            Ok(region) => {
                assert_eq!(region.bytes(), 3 << 20);
                assert_eq!(region.address().bytes, 3 << 20);
            }
            // A machine without huge pages: only the demand for them fails.
            Err(error) => {
                assert_eq!(huge_pages, HugePages::On);
                assert!(matches!(error.status, Status::ResourceLimit | Status::OsError), "{error}");
            }
        }
    }
}

#[test]
fn absurd_sizes_are_refused() {
    let fabric = open();
    for bytes in [usize::MAX, usize::MAX / 2, 1 << 60] {
        let refused = fabric.allocate(bytes, Access::ALL).map(|_| ()).unwrap_err();
        assert!(matches!(refused.status, Status::ResourceLimit | Status::OsError), "{refused}");
    }
    let cq = fabric.create_cq(u32::MAX).expect("only a hint");
    let config = QpConfig { max_recv_wr: u32::MAX, ..CONFIG };
    let refused = fabric.create_qp(&config, &[], &cq, &cq, None).map(|_| ()).unwrap_err();
    assert_eq!(refused.status, Status::InvalidArgument);
}

/// The kernel says of each mapping which node it is to come from.
#[test]
fn regions_come_from_the_node_that_was_asked_for() {
    if let Err(error) = crate::numa::check(Some(0)) {
        println!("skipped: {error}");
        return;
    }
    let policy_at = |base: core::ptr::NonNull<u8>| {
        let maps = std::fs::read_to_string("/proc/self/numa_maps").expect("procfs");
        // Neighbours of one policy are one line, which begins at the first of them.
        let start = |line: &&str| usize::from_str_radix(line.split(' ').next().unwrap_or(""), 16).unwrap_or(usize::MAX);
        let line = maps.lines().take_while(|line| start(line) <= base.as_ptr().addr()).last();
        line.and_then(|line| line.split(' ').nth(1)).expect("the mapping").to_owned()
    };
    for (numa_id, policy) in [(None, "default"), (Some(0), "prefer")] {
        let fabric = Shm::open(ShmOptions { numa_id, ..ShmOptions::default() }).expect("shm opens");
        for access in [Access::LOCAL, Access::ALL] {
            let region = fabric.allocate(1 << 20, access).expect("region");
            assert!(policy_at(region.base()).starts_with(policy), "{numa_id:?}: {}", policy_at(region.base()));
        }
    }
    let error = Shm::open(ShmOptions { numa_id: Some(1023), ..ShmOptions::default() }).expect_err("no such node");
    assert!(error.message.contains("numa-id=1023"), "{error}");
}
