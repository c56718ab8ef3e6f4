//! What each operation does, and what is refused.

use crate::support::{ALL, PATIENCE, at, end, job, options, read, with, word, write};
use reclane::engine::{Kind, Known, Operation};
use reclane::error::{Outcome, Status};
use reclane::fabric::Access;
use std::sync::atomic::Ordering;

#[test]
fn bytes_go_both_ways_between_all_ranks() {
    let ranks = job(&options(3), 3);
    let regions: Vec<_> = ranks.iter().map(|rank| rank.open_region(7, 8192, ALL).expect("a region")).collect();
    for (from, rank) in ranks.iter().enumerate() {
        for to in 0..3_u32 {
            let text = format!("from {from} to {to}");
            write(rank, at(to, 7, from as u64 * 64), text.as_bytes()).expect("write");
            assert_eq!(read(rank, at(to, 7, from as u64 * 64), text.len()).expect("read"), text.as_bytes());
        }
    }
    for (to, region) in regions.iter().enumerate() {
        for from in 0..3 {
            let expected = u64::from_le_bytes(format!("from {from} to {to}").as_bytes()[..8].try_into().expect("8"));
            assert_eq!(word(region, from * 8).load(Ordering::Acquire), expected);
        }
    }
    drop(regions);
    end(ranks);
}

#[test]
fn atomics_of_all_ranks_lose_nothing() {
    const ADDS: u64 = 500;
    let ranks = job(&options(3), 3);
    let region = ranks[0].open_region(0, 4096, ALL).expect("a region");
    std::thread::scope(|scope| {
        for rank in &ranks {
            scope.spawn(move || {
                for _ in 0..ADDS {
                    rank.fetch_add(at(0, 0, 8), 1).expect("add");
                    rank.fetch_add_once(at(0, 0, 16), 1).expect("add");
                }
            });
        }
    });
    assert_eq!(word(&region, 1).load(Ordering::Acquire), 3 * ADDS);
    assert_eq!(word(&region, 2).load(Ordering::Acquire), 3 * ADDS);
    assert_eq!(ranks[1].compare_swap(at(0, 0, 8), 3 * ADDS, 7).expect("swap"), 3 * ADDS);
    assert_eq!(ranks[1].compare_swap(at(0, 0, 8), 3 * ADDS, 8).expect("swap"), 7);
    assert_eq!(ranks[1].compare_swap_once(at(0, 0, 16), 3 * ADDS, 9).expect("swap"), 3 * ADDS);
    assert_eq!(ranks[2].fetch_add_once(at(0, 0, 16), 0).expect("add"), 9);
    // One entry per asking rank and cell that was used.
    let executed = ranks[0].executed();
    assert!(executed.iter().any(|one| one.status == 0 && one.value == 9), "{executed:?}");
    drop(region);
    end(ranks);
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_sent() {
    let ranks = job(&options(2), 2);
    let region = ranks[1].open_region(3, 100, Access::REMOTE_READ).expect("a region");
    let _full = ranks[1].open_region(4, 100, ALL).expect("a region");
    let refused = |result: reclane::error::Result<()>, words: &[&str]| {
        let error = result.expect_err("refused");
        assert_eq!((error.status, error.outcome), (Status::InvalidArgument, Outcome::NotExecuted), "{error}");
        words.iter().for_each(|word| assert!(error.message.contains(word), "{word}: {error}"));
    };
    refused(write(&ranks[0], at(1, 3, 0), &[1]), &["rank 1, region 3", "no right"]);
    refused(write(&ranks[0], at(1, 4, 99), &[1, 2]), &["rank 1, region 4", "offset 99", "100 bytes"]);
    refused(write(&ranks[0], at(1, 4, u64::MAX), &[1, 2]), &["rank 1, region 4"]);
    refused(write(&ranks[0], at(1, 5, 0), &[1]), &["rank 1 has no region 5"]);
    refused(write(&ranks[0], at(2, 4, 0), &[1]), &["no rank 2", "2 ranks"]);
    refused(ranks[0].fetch_add(at(1, 4, 4), 1).map(drop), &["region 4", "multiple of 8"]);
    refused(ranks[0].fetch_add_once(at(1, 4, 96), 1).map(drop), &["rank 1, region 4", "do not lie in the region"]);
    refused(ranks[0].fetch_add_once(at(1, 3, 0), 1).map(drop), &["rank 1, region 3", "without the right"]);
    refused(ranks[1].open_region(3, 8, ALL).map(drop), &["region 3 is open already"]);
    refused(ranks[1].open_region(512, 8, ALL).map(drop), &["region 512", "511"]);
    refused(ranks[1].open_region(9, 0, ALL).map(drop), &["region 9", "0 bytes"]);
    refused(ranks[1].open_region(9, 8, Access::LOCAL).map(drop), &["region 9", "no right"]);
    // None of it has hurt the lane.
    assert_eq!(read(&ranks[0], at(1, 3, 0), 4).expect("read"), [0; 4]);
    drop(region);
    end(ranks);
}

#[test]
fn a_region_that_was_opened_anew_is_found_and_a_closed_one_is_not() {
    let ranks = job(&options(2), 2);
    let first = ranks[1].open_region(3, 64, ALL).expect("a region");
    write(&ranks[0], at(1, 3, 0), &[1; 8]).expect("write");
    drop(first);
    let gone = write(&ranks[0], at(1, 3, 0), &[2; 8]).expect_err("closed");
    assert!(gone.message.contains("rank 1 has no region 3"), "{gone}");
    let larger = ranks[1].open_region(3, 8192, ALL).expect("a region");
    write(&ranks[0], at(1, 3, 8000), &[3; 8]).expect("write");
    assert_eq!(word(&larger, 0).load(Ordering::Acquire), 0);
    assert_eq!(word(&larger, 1000).load(Ordering::Acquire), u64::from_le_bytes([3; 8]));
    let facts = ranks[1].regions();
    assert_eq!((facts.len(), facts[0].id, facts[0].bytes, facts[0].iova), (1, 3, 8192, 4 << 40));
    assert_eq!(ranks[0].find_region(1, 3, PATIENCE).expect("found").address.bytes, 8192);
    let none = ranks[0].find_region(1, 8, std::time::Duration::from_millis(1)).expect_err("none");
    assert!(none.message.contains("rank 1 has no region 8"), "{none}");
    drop(larger);
    end(ranks);
}

#[test]
fn a_batch_is_done_in_order_and_each_outcome_is_known() {
    let ranks = job(&with(&options(2), "max-send-wr", 128), 2);
    let region = ranks[1].open_region(0, 4096, ALL).expect("a region");
    let source: Vec<u64> = (1..=32).collect();
    let mut old = [u64::MAX; 2];
    let mut batch: Vec<Operation> = (0..30_usize)
        .map(|index| Operation {
            kind: Kind::Write,
            region: 0,
            offset: 8 * (index as u64 % 4),
            bytes: 8,
            local: source.as_ptr().wrapping_add(index).cast_mut().cast(),
            operand: 0,
            swap: 0,
        })
        .collect();
    for (index, result) in old.iter_mut().enumerate() {
        let local = std::ptr::from_mut(result).cast();
        batch.push(Operation { kind: Kind::FetchAdd, offset: 8 * index as u64, operand: 100, local, ..batch[0] });
    }
    // SAFETY: all that the batch names lives until the wait is over.
    let ticket = unsafe { ranks[0].post(1, &batch) }.expect("post");
    ranks[0].wait(ticket, PATIENCE).expect("done");
    // Of four places the last writes are numbers 29, 30, 27, 28.
    assert_eq!(old, [29, 30]);
    let words: Vec<u64> = (0..4).map(|index| word(&region, index).load(Ordering::Acquire)).collect();
    assert_eq!(words, [129, 130, 27, 28]);
    let mut known = [Known::UnderWay; 32];
    ranks[0].outcomes(ticket, &mut known).expect("known");
    assert_eq!(known, [Known::Done; 32]);
    assert!(ranks[0].outcomes(ticket, &mut [Known::Done; 33]).is_err());
    ranks[0].flush(1, PATIENCE).expect("flush");
    let lanes = ranks[0].lanes();
    assert_eq!((lanes[1].posted, lanes[1].retired), (32, 32));
    let mut wrong = batch.clone();
    wrong[31].offset = 4096;
    // SAFETY: as above.
    let refused = unsafe { ranks[0].post(1, &wrong) }.expect_err("refused");
    assert_eq!(refused.status, Status::InvalidArgument);
    assert_eq!(ranks[0].lanes()[1].posted, 32, "all of a batch or none");
    let long = vec![batch[0]; 33];
    // SAFETY: as above.
    let refused = unsafe { ranks[0].post(1, &long) };
    assert!(refused.is_ok() || refused.is_err_and(|error| error.message.contains("at most")));
    end(ranks);
}
