//! Offers that lie, clients that vanish halfway, and clients that overrun the rules of a slot.

use super::attacker::{Attacker, Half, Joined, SERVER, blank};
use super::bed::{Bed, Victim, alone, holdings, holdings_settle, number, spec, until};
use reclane::fabric::{Access, Qp, QpAddress};
use reclane::ids::Incarnation;
use reclane::ids::TableTag;
use reclane::lane::{LaneEnd, LaneOffer};
use reclane::ps::{GetStats, RowsIn, Store, TableShape};
use reclane::rpc::Scheme;
use reclane::wire::payload::{Command, TableSpec};
use reclane::wire::{Op, RpcStatus, Word};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// What is wrong with an offer.
type Lie = fn(&mut LaneOffer);

fn each(offer: &mut LaneOffer, lie: impl Fn(&mut LaneEnd)) {
    offer.ends.iter_mut().for_each(lie);
}

const LIES: &[(&str, Lie)] = &[
    ("another geometry", |o| o.geometry.slots += 1),
    ("huge geometry", |o| o.geometry.request_payload_bytes = u32::MAX),
    ("fewer lanes", |o| {
        o.geometry.lanes -= 1;
        o.ends.pop();
    }),
    ("a small region", |o| each(o, |end| end.region.bytes = 64)),
    ("a region that is not there", |o| each(o, |end| end.region.rkey ^= 1)),
    ("a region at the end of the numbers", |o| each(o, |end| end.region.iova = u64::MAX - end.region.bytes)),
    ("a region in the middle of a line", |o| each(o, |end| end.region.iova += 4)),
    ("a region one word on", |o| each(o, |end| end.region.iova += 8)),
    ("another access", |o| each(o, |end| end.region.access = Access::LOCAL)),
    ("another scheme", |o| o.scheme = 9),
    ("another integrity", |o| o.integrity = 1),
    ("another generation", |o| each(o, |end| end.generation = 7)),
    ("a place outside the region", |o| o.ends[0].place = o.ends[0].places),
    ("more places than lanes", |o| each(o, |end| end.places += 1)),
    ("lanes out of order", |o| o.ends.swap(0, 1)),
    ("another process", |o| o.incarnation = Incarnation(1)),
    ("no address", |o| o.ends[0].queue_pair = QpAddress(Vec::new())),
    ("a strange address", |o| o.ends[0].queue_pair.0.fill(0xff)),
    ("a wrong secret", |o| o.ends[1].queue_pair.0[30] ^= 1),
    ("one address twice", |o| o.ends[1].queue_pair = o.ends[0].queue_pair.clone()),
    ("addresses the other way round", |o| {
        let last = o.ends.len() - 1;
        let first = o.ends[0].queue_pair.clone();
        o.ends[0].queue_pair = core::mem::replace(&mut o.ends[last].queue_pair, first);
    }),
];

#[test]
fn offers_that_lie_leave_nothing_behind() {
    let _alone = alone();
    let bed = Bed::start(&[("commit-scheme", "single")]);
    let victim = Victim::start(bed.client());
    victim.is_served();
    let lanes = bed.server.stats().lanes;
    for (name, lie) in LIES {
        let joined = Joined::new(&bed);
        let half = Half::new(joined.geometry());
        let mut offer = half.offer(&joined, Scheme::Single);
        lie(&mut offer);
        joined.control.publish_lanes(SERVER, offer.encode()).expect("published");
        let answer = joined.control.get_lanes(SERVER, Duration::from_millis(300));
        let harmless = *name == "addresses the other way round" || *name == "a region at the end of the numbers";
        assert!(harmless || answer.is_err(), "{name}: let in");
        joined.control.leave();
        drop(half);
    }
    for bytes in [Vec::new(), vec![0; 16], vec![0xff; 200_000], b"RLO1".to_vec()] {
        let joined = Joined::new(&bed);
        joined.control.publish_lanes(SERVER, bytes).expect("published");
        joined.control.leave();
    }
    victim.is_served();
    bed.settle(lanes);
    victim.finish();
    drop(bed.client());
}

#[test]
fn clients_that_vanish_halfway_leave_nothing_behind() {
    let _alone = alone();
    let bed = Bed::start(&[("commit-scheme", "single")]);
    let victim = Victim::start(bed.client());
    victim.is_served();
    drop(Attacker::connect(&bed, Scheme::Single));
    let lanes = 3;
    bed.settle(lanes);
    let before = holdings();
    for round in 0..number("RECLANE_HOSTILE_JOINS", 400) {
        let joined = Joined::new(&bed);
        match round % 4 {
            // Comes and goes.
            0 => joined.control.leave(),
            // Offers lanes and is gone.
            1 => {
                let half = Half::new(joined.geometry());
                let offer = half.offer(&joined, Scheme::Single).encode();
                joined.control.publish_lanes(SERVER, offer).expect("published");
                drop(half);
            }
            // Offers lanes, leaves the control plane, and keeps its memory and sockets.
            2 => {
                let half = Half::new(joined.geometry());
                let offer = half.offer(&joined, Scheme::Single).encode();
                joined.control.publish_lanes(SERVER, offer).expect("published");
                joined.control.leave();
                if round % 16 == 2 {
                    bed.settle(lanes);
                }
            }
            // Connects one lane of three.
            _ => {
                let half = Half::new(joined.geometry());
                let offer = half.offer(&joined, Scheme::Single).encode();
                joined.control.publish_lanes(SERVER, offer).expect("published");
                let answer = joined.answer();
                half.qps[0].connect(&answer.ends[0].queue_pair, super::bed::PATIENCE).expect("connects");
            }
        }
    }
    victim.is_served();
    bed.settle(lanes);
    holdings_settle(before);
    victim.finish();
}

#[test]
fn a_client_is_let_in_once() {
    let _alone = alone();
    let bed = Bed::start(&[("commit-scheme", "single")]);
    let mut first = Attacker::connect(&bed, Scheme::Single);
    let more: Vec<Half> = (0..20).map(|_| Half::new(first.joined.geometry())).collect();
    for half in &more {
        let offer = half.offer(&first.joined, Scheme::Single).encode();
        first.joined.control.publish_lanes(SERVER, offer).expect("published");
    }
    // Whoever comes later is let in after all of that was heard.
    let second = Attacker::connect(&bed, Scheme::Single);
    bed.settle(6);
    assert_eq!(first.ask(0, blank(Op::InitTable as u8, 0, 0), &spec("t", 4).encode()).status, 0);
    drop((second, first));
    bed.settle(0);
}

/// A store whose GET of key 0 waits until it is let go.
#[derive(Default)]
struct Slow {
    entered: AtomicU32,
    open: Mutex<bool>,
    opened: Condvar,
}

impl Store for Slow {
    fn init_table(&self, _: u32, _: &TableSpec) -> Result<TableTag, RpcStatus> {
        Ok(TableTag(1))
    }

    fn shape(&self, _: TableTag) -> Option<TableShape> {
        Some(TableShape { dim: 1 })
    }

    unsafe fn get(&self, _: u32, _: TableTag, keys: &[u64], _: &[u64], out: *mut u8) -> Result<GetStats, RpcStatus> {
        if keys == [0] {
            self.entered.fetch_add(1, Ordering::SeqCst);
            let mut open = self.open.lock().expect("not poisoned");
            while !*open {
                open = self.opened.wait(open).expect("not poisoned");
            }
        }
        // SAFETY: the caller gives room for one float a key.
        unsafe { out.write_bytes(0, keys.len() * 4) };
        Ok(GetStats::default())
    }

    unsafe fn put(&self, _: u32, _: TableTag, _: &[u64], _: RowsIn) -> Result<(), RpcStatus> {
        Ok(())
    }

    unsafe fn update(&self, _: u32, _: TableTag, _: &[u64], _: RowsIn, _: bool) -> Result<(), RpcStatus> {
        Ok(())
    }

    fn command(&self, _: u32, _: &Command) -> Result<(), RpcStatus> {
        Ok(())
    }
}

#[test]
fn a_slot_has_one_request_at_a_time_however_many_are_committed() {
    let _alone = alone();
    let store = Arc::new(Slow::default());
    let shared = Arc::clone(&store);
    let changes = [("commit-scheme", "single"), ("rdma-rc-server-get-workers", "2")];
    let bed = Bed::with_store(&changes, move |_| shared);
    let mut attacker = Attacker::connect(&bed, Scheme::Single);
    let mut get = blank(Op::Get as u8, 1, 1);
    get.response_bytes = 4;
    attacker.seal(0, &mut get, false);
    attacker.commit(0, &get);
    until("the first request at work", || (store.entered.load(Ordering::SeqCst) == 1).then_some(()));
    // The next uses of the same slot, without waiting for the answer.
    attacker.seal(0, &mut get, false);
    attacker.commit(0, &get);
    // Two requests of another slot that the poll thread executes itself: a whole round lies between them.
    for _ in 0..2 {
        assert_eq!(attacker.ask(1, blank(Op::InitTable as u8, 0, 0), &spec("t", 1).encode()).status, 0);
    }
    // A GET of another slot goes behind the second request, had that been handed out, and would wait with it.
    let mut other = blank(Op::Get as u8, 1, 1);
    other.response_bytes = 4;
    other.inline[0] = 1;
    assert_eq!(attacker.ask(1, other, &[]).status, 0);
    assert_eq!(store.entered.load(Ordering::SeqCst), 1, "two requests of one slot at work at the same time");
    *store.open.lock().expect("not poisoned") = true;
    store.opened.notify_all();
    assert_eq!(attacker.answer(0).status, 0);
    assert_eq!(attacker.places[0].word, Word::new(1, 2));
}

#[test]
fn a_client_that_commits_without_pause_does_not_keep_the_server_from_stopping() {
    let _alone = alone();
    let bed = Bed::start(&[("commit-scheme", "single")]);
    let mut attacker = Attacker::connect(&bed, Scheme::Single);
    std::thread::scope(|scope| {
        let server = &bed.server;
        let stopping = scope.spawn(move || server.stop(super::bed::PATIENCE));
        let mut header = blank(Op::Get as u8, 999, 1);
        while !stopping.is_finished() {
            for index in 0..attacker.places.len() {
                let word = attacker.places[index].word.0;
                if word & 0xffff_ffff == 0 || attacker.response_word(index) == word {
                    attacker.seal(index, &mut header, false);
                    attacker.commit(index, &header);
                }
            }
        }
        stopping.join().expect("no panic").expect("stops");
    });
    drop(attacker);
}
