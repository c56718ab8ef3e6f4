//! Checkpoints of ranks, within one process: what is in them, what comes back, what is refused.

use crate::support::{ALL, Changes, Directory, PATIENCE, at, end, job, options, read, settings, with, word, write};
use reclane::checkpoint::disk::RealDisk;
use reclane::engine::{CheckpointState, Hooks, OwnRegion, Rank, Section};
use reclane::error::{Error, Status};
use reclane::fabric::Access;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

pub fn saved(ranks: u32, directory: &Directory) -> Changes {
    let changes = with(&options(ranks), "checkpoint-directory", directory.path());
    // Much else runs on the machine that tests run on.
    with(&with(&changes, "checkpoint-hold-timeout-ms", 20_000), "checkpoint-restore", "latest")
}

/// All ranks come to a checkpoint; what became of it on each.
fn together(ranks: &[Rank], full: bool, section: impl Fn(u32) -> Vec<Section> + Sync) -> Vec<Result<u64, Box<Error>>> {
    std::thread::scope(|scope| {
        let section = &section;
        let all: Vec<_> = (0..)
            .zip(ranks)
            .map(|(n, rank)| scope.spawn(move || rank.checkpoint(full, section(n), PATIENCE)))
            .collect();
        all.into_iter().map(|one| one.join().expect("a thread")).collect()
    })
}

fn none(_: u32) -> Vec<Section> {
    Vec::new()
}

/// All ranks come to a checkpoint, which is committed. Its epoch.
fn commit(ranks: &[Rank], full: bool) -> u64 {
    let numbers = together(ranks, full, |n| vec![("position".to_owned(), vec![u8::try_from(n).expect("few"); 100])]);
    let mut epochs = numbers.iter().zip(ranks).map(|(number, rank)| {
        let number = *number.as_ref().expect("copied");
        rank.checkpoint_wait(number, CheckpointState::Committed, PATIENCE).expect("committed").epoch
    });
    let epoch = epochs.next().expect("a rank");
    assert!(epochs.all(|other| other == epoch));
    epoch
}

fn regions(ranks: &[Rank]) -> Vec<OwnRegion> {
    ranks.iter().map(|rank| rank.open_region(3, 3 << 20, ALL).expect("a region")).collect()
}

fn fill(regions: &[OwnRegion], salt: u64) {
    for (n, region) in (0..).zip(regions) {
        for index in 0..region.bytes() / 8 {
            word(region, index).store(salt ^ (n << 32) ^ index as u64, Ordering::Relaxed);
        }
    }
}

fn has(regions: &[OwnRegion], salt: u64) -> bool {
    (0..).zip(regions).all(|(n, region)| {
        (0..region.bytes() / 8)
            .all(|index| word(region, index).load(Ordering::Relaxed) == salt ^ (n << 32) ^ index as u64)
    })
}

#[test]
fn a_job_gets_its_regions_back_under_the_same_ids_and_addresses() {
    let directory = Directory::new();
    let changes = saved(3, &directory);
    let ranks = job(&changes, 3);
    assert!(ranks.iter().all(|rank| rank.restored() == 0));
    let open = regions(&ranks);
    let small = ranks[1].open_region(500, 1, Access::REMOTE_READ).expect("a region");
    fill(&open, 5);
    write(&ranks[0], at(2, 3, 0), b"a neighbour wrote this").expect("write");
    assert_eq!(ranks[0].fetch_add_once(at(1, 3, 64), 1).expect("add"), 5 ^ (1 << 32) ^ 8);
    let bytes = read(&ranks[0], at(2, 3, 0), 22).expect("read");
    let epoch = commit(&ranks, false);
    let facts: Vec<_> = ranks.iter().map(|rank| (rank.regions(), rank.executed())).collect();
    let kept: Vec<Vec<u64>> =
        open.iter().map(|r| (0..r.bytes() / 8).map(|i| word(r, i).load(Ordering::Relaxed)).collect()).collect();
    // What comes later is not in it.
    fill(&open, 6);
    drop((open, small));
    end(ranks);

    let ranks = job(&changes, 3);
    for (rank, (then, executed)) in ranks.iter().zip(&facts) {
        assert_eq!((rank.restored(), &rank.executed()), (epoch, executed));
        let now = rank.regions();
        assert_eq!(now.len(), then.len());
        for (now, then) in now.iter().zip(then) {
            assert_eq!((now.id, now.iova, now.bytes, now.access), (then.id, then.iova, then.bytes, then.access));
        }
        assert_eq!(rank.restored_section("position").expect("it was saved").len(), 100);
        assert_eq!(rank.restored_section("other"), None);
    }
    // Peers reach them before their own program has opened them.
    assert_eq!(read(&ranks[1], at(2, 3, 0), 22).expect("read"), bytes);
    let error = ranks[1].open_region(500, 2, Access::REMOTE_READ).expect_err("it had one byte");
    assert!(error.message.contains("region 500 came back from checkpoint"), "{error}");
    let _small = ranks[1].open_region(500, 1, Access::REMOTE_READ).expect("as it was");
    let open = regions(&ranks);
    for (region, kept) in open.iter().zip(&kept) {
        assert!((0..kept.len()).all(|index| word(region, index).load(Ordering::Relaxed) == kept[index]));
    }
    // A claimed region is the program's; the id is taken.
    assert_eq!(ranks[0].open_region(3, 3 << 20, ALL).expect_err("open").status, Status::InvalidArgument);
    drop((open, _small));
    end(ranks);
}

#[test]
fn what_has_not_changed_is_not_written_again_and_a_damaged_one_is_passed_over() {
    let directory = Directory::new();
    let changes = saved(2, &directory);
    let ranks = job(&changes, 2);
    let open = regions(&ranks);
    fill(&open, 1);
    let first = commit(&ranks, false);
    word(&open[1], 9).fetch_xor(0xff, Ordering::Relaxed);
    let number = together(&ranks, false, none).remove(0).expect("copied");
    let status = ranks[0].checkpoint_wait(number, CheckpointState::Committed, PATIENCE).expect("committed");
    assert!(status.written_bytes < 1_200_000 && status.state_bytes > 6 << 20, "{status:?}");
    drop(open);
    end(ranks);
    let file = directory.catalog().directory_of(status.epoch).join("rank-1-of-2.rck");
    let mut bytes = std::fs::read(&file).expect("a file");
    bytes[5000] ^= 1;
    std::fs::write(&file, bytes).expect("written");
    let ranks = job(&changes, 2);
    assert_eq!(ranks.iter().map(Rank::restored).collect::<Vec<_>>(), [first, first]);
    let open = regions(&ranks);
    assert!(has(&open, 1));
    // The damaged one does not count among those that are kept.
    for _ in 0..3 {
        word(&open[0], 0).fetch_add(1, Ordering::Relaxed);
        commit(&ranks, true);
    }
    drop(open);
    end(ranks);
    for epoch in directory.committed() {
        let only = with(&changes, "checkpoint-restore-epoch", epoch);
        if epoch != status.epoch {
            end(job(&only, 2));
        } else {
            let error = Rank::open(&settings(&only)).map(drop).expect_err("damaged");
            assert!(error.message.contains("chunk 0 of"), "{error}");
        }
    }
}

#[test]
fn other_numbers_of_ranks_and_contradicting_options_are_refused_with_their_reasons() {
    let directory = Directory::new();
    let changes = saved(2, &directory);
    let ranks = job(&changes, 2);
    let open = regions(&ranks);
    let epoch = commit(&ranks, false);
    drop(open);
    end(ranks);
    let three = with(&changes, "num-server-processes", 3);
    let error = Rank::open(&settings(&three)).map(drop).expect_err("it was of two");
    assert!(error.message.contains(&format!("checkpoint {epoch} is of 2 ranks, this job has 3")), "{error}");
    let first = Rank::open(&settings(&changes)).expect("rank 0");
    let joined = with(&with(&changes, "rdma-control-plane-port", first.control_plane_port()), "shard-id", 1);
    let off = with(&joined, "checkpoint-restore", "off");
    let error = Rank::open(&settings(&off)).map(drop).expect_err("rank 0 restores");
    assert!(error.message.contains("rank 0 restores checkpoint"), "{error}");
    let elsewhere = Directory::new();
    let other = with(&with(&joined, "checkpoint-directory", elsewhere.path()), "rdma-control-plane-timeout-ms", 300);
    let error = Rank::open(&settings(&other)).map(drop).expect_err("another directory");
    assert!(error.message.contains("rank 0 has not begun a world in"), "{error}");
    let second = Rank::open(&settings(&joined)).expect("rank 1");
    drop(second);
    // Its seat was taken: what it gets back is not what the others have by now.
    let error = Rank::open(&settings(&joined)).map(drop).expect_err("alone");
    assert_eq!(error.status, Status::WrongState, "{error}");
    drop(first);
    let nowhere = with(&with(&changes, "checkpoint-directory", ""), "checkpoint-restore", "off");
    let alone = job(&with(&nowhere, "num-server-processes", 1), 1);
    assert_eq!(alone[0].checkpoint(false, Vec::new(), PATIENCE).expect_err("nowhere").status, Status::WrongState);
    end(alone);
}

#[test]
fn a_rank_that_does_not_come_or_leaves_holds_up_nobody() {
    let directory = Directory::new();
    let changes = saved(2, &directory);
    let mut ranks = job(&changes, 2);
    let open = regions(&ranks);
    let error = ranks[0].checkpoint(false, Vec::new(), Duration::from_millis(50)).expect_err("rank 1 did not come");
    assert_eq!(error.status, Status::Busy, "{error}");
    // Rank 1 comes and waits for rank 0, whose former wish is forgotten; then both are there.
    let epoch = commit(&ranks, false);
    assert!(epoch > 0);
    // Without hooks nobody is stopped in the middle of work.
    let number = ranks[1].checkpoint_begin(false).expect("asked");
    let error = ranks[1].checkpoint_wait(number, CheckpointState::Committed, PATIENCE).expect_err("no hooks");
    assert!(error.status == Status::CheckpointAborted && error.message.contains("has no hooks"), "{error}");
    write(&ranks[0], at(1, 3, 0), &[1]).expect("the gate is open");
    let last = ranks.pop().expect("rank 1");
    std::thread::scope(|scope| {
        // The call below that looks whether it waits may be there first.
        let waiting = scope.spawn(|| {
            loop {
                let waited = ranks[0].checkpoint(false, Vec::new(), PATIENCE);
                if !waited.as_ref().is_err_and(|error| error.message.contains("another thread")) {
                    return waited;
                }
            }
        });
        // Until it waits, this rank may not leave: a second call of it is busy then.
        while !waiting.is_finished()
            && !ranks[0]
                .checkpoint(false, Vec::new(), Duration::ZERO)
                .is_err_and(|e| e.message.contains("another thread"))
        {}
        drop(last);
        let error = waiting.join().expect("a thread").expect_err("rank 1 left");
        assert!(error.status == Status::CheckpointAborted && error.message.contains("rank 1 is gone"), "{error}");
    });
    drop(open);
    end(ranks);
}

/// A program that works all the time, until its hook holds it.
struct Busy {
    stop: AtomicBool,
    holding: AtomicBool,
    resting: AtomicBool,
    count: AtomicU64,
    held: AtomicU64,
}

impl Hooks for Busy {
    fn hold(&self, _: Duration) -> Result<(), String> {
        self.holding.store(true, Ordering::SeqCst);
        while !self.resting.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        self.held.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn sections(&self) -> Vec<Section> {
        vec![("count".to_owned(), self.count.load(Ordering::SeqCst).to_le_bytes().to_vec())]
    }

    fn resume(&self, _: bool) {
        self.resting.store(false, Ordering::SeqCst);
        self.holding.store(false, Ordering::SeqCst);
    }
}

/// Adds to every rank's word, and counts.
fn work(rank: &Rank, busy: &Busy, ranks: u32) {
    while !busy.stop.load(Ordering::SeqCst) {
        if busy.holding.load(Ordering::SeqCst) {
            busy.resting.store(true, Ordering::SeqCst);
            while busy.resting.load(Ordering::SeqCst) && !busy.stop.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
        }
        for peer in 0..ranks {
            rank.fetch_add(at(peer, 3, 0), 1).expect("add");
        }
        busy.count.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn hooks_hold_programs_that_work_all_the_time_and_every_cut_is_one() {
    let directory = Directory::new();
    let changes = saved(2, &directory);
    let ranks = job(&changes, 2);
    let open: Vec<OwnRegion> = ranks.iter().map(|rank| rank.open_region(3, 4096, ALL).expect("a region")).collect();
    let busy: Vec<Arc<Busy>> = (0..2)
        .map(|_| {
            let [stop, holding, resting] = [const { AtomicBool::new(false) }; 3];
            Arc::new(Busy { stop, holding, resting, count: AtomicU64::new(0), held: AtomicU64::new(0) })
        })
        .collect();
    for (rank, busy) in ranks.iter().zip(&busy) {
        rank.set_checkpoint_hooks(Some(Arc::clone(busy) as Arc<dyn Hooks>));
    }
    let mut last = 0;
    std::thread::scope(|scope| {
        for (rank, busy) in ranks.iter().zip(&busy) {
            scope.spawn(|| work(rank, busy, 2));
        }
        for round in 0..6 {
            let asker = &ranks[round % 2];
            let number = asker.checkpoint_begin(false).expect("asked");
            last = asker.checkpoint_wait(number, CheckpointState::Committed, PATIENCE).expect("committed").epoch;
        }
        busy.iter().for_each(|busy| busy.stop.store(true, Ordering::SeqCst));
    });
    assert!(busy.iter().all(|busy| busy.held.load(Ordering::SeqCst) == 6));
    ranks.iter().for_each(|rank| rank.set_checkpoint_hooks(None));
    drop(open);
    end(ranks);
    for epoch in directory.committed() {
        let ranks = job(&with(&changes, "checkpoint-restore-epoch", epoch), 2);
        let count = |rank: &Rank| {
            let bytes = rank.restored_section("count").expect("saved");
            u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
        };
        let total: u64 = ranks.iter().map(count).sum();
        for rank in &ranks {
            let region = rank.open_region(3, 4096, ALL).expect("it came back");
            assert_eq!(word(&region, 0).load(Ordering::Relaxed), total, "epoch {epoch}");
        }
        end(ranks);
    }
    assert_eq!(directory.committed()[0], last);
}

#[test]
fn a_leader_of_a_world_that_is_over_writes_nothing_more() {
    let directory = Directory::new();
    let changes = saved(1, &directory);
    let old = job(&changes, 1);
    let open = regions(&old);
    let epoch = commit(&old, false);
    // The same job, started again elsewhere while the old one lives.
    let new = job(&changes, 1);
    assert_eq!(new[0].restored(), epoch);
    let error = together(&old, false, none).remove(0).expect_err("it is over");
    assert!(error.status == Status::CheckpointAborted && error.message.contains("which is over"), "{error}");
    let later = commit(&new, false);
    assert_eq!(directory.committed(), [later, epoch]);
    assert!(directory.catalog().epochs(&RealDisk).expect("a list").iter().all(|known| *known <= later));
    drop(open);
    end(old);
    end(new);
}

#[test]
fn checkpoints_come_and_go_without_leaving_anything() {
    let directory = Directory::new();
    let changes = saved(2, &directory);
    let ranks = job(&changes, 2);
    let open = regions(&ranks);
    let holdings = || std::fs::read_dir("/proc/self/fd").expect("descriptors").count();
    let mut settled = 0;
    for round in 0..12_u64 {
        word(&open[0], 7).store(round, Ordering::Relaxed);
        commit(&ranks, false);
        if round == 3 {
            settled = holdings();
        }
    }
    // Other tests of this process open files too: nothing that grows with the rounds.
    assert!(holdings() < settled + 200);
    let left: Vec<_> = std::fs::read_dir(directory.path()).expect("a directory").collect();
    assert!(left.len() < 20, "{left:?}");
    drop(open);
    end(ranks);
}
