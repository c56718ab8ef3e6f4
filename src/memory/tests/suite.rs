//! What lanes, logs and cells do, written once, on every fabric that runs by itself.

use super::bed::{Bed, PLACES, REGION, To};
use crate::error::{Outcome, Status};
use crate::fabric::{Access, Fabric};
use crate::memory::{Asker, Kind, Known, Operation, Stop, was_refused};
use crate::sync::Ordering;
use crate::wire::region::AtomicRequest;

pub fn operations_do_what_they_say<F: Fabric>(mut bed: Bed<F>) {
    bed.connect(To::Regions);
    bed.near_word(0).store(11, Ordering::Relaxed);
    bed.run(&[bed.operation(Kind::Write, 0, 5)]).expect("write");
    let mut add = bed.operation(Kind::FetchAdd, 1, 5);
    add.operand = 4;
    bed.run(&[add]).expect("add");
    let swap = Operation { operand: 15, swap: 40, ..bed.operation(Kind::CompareSwap, 2, 5) };
    bed.run(&[swap]).expect("swap");
    bed.run(&[swap]).expect("no swap");
    bed.run(&[bed.operation(Kind::Read, 3, 5)]).expect("read");
    let got = [1, 2, 3].map(|index| bed.near_word(index).load(Ordering::Acquire));
    assert_eq!((got, bed.far_word(5).load(Ordering::Acquire)), ([11, 40, 40], 40));
    let facts = bed.lane.facts();
    assert_eq!((facts.posted, facts.retired, facts.generation), (5, 5, 1));
    // An atomic whose old value nobody wants.
    bed.run(&[Operation { local: core::ptr::null_mut(), ..add }]).expect("add");
}

pub fn a_batch_is_in_order_and_a_full_log_takes_nothing<F: Fabric>(mut bed: Bed<F>) {
    bed.connect(To::Regions);
    for round in 0..20_u64 {
        let batch: Vec<Operation> = (0..PLACES).map(|index| bed.operation(Kind::Write, index, index % 3)).collect();
        (0..PLACES).for_each(|index| bed.near_word(index).store(round * 100 + index as u64, Ordering::Relaxed));
        let last = bed.run(&batch).expect("done");
        assert_eq!(last, (round + 1) * PLACES as u64);
        let found = [0, 1, 2].map(|index| bed.far_word(index).load(Ordering::Acquire));
        assert_eq!(found, [15, 13, 14].map(|index| round * 100 + index));
    }
    // The first ones have left the log long ago, and are done all the same.
    bed.settle(1).expect("done");
    assert_eq!((bed.settle(0).is_err(), bed.lane.known(1)), (true, None));
    let more = vec![bed.operation(Kind::Read, 0, 0); PLACES + 1];
    assert!(matches!(bed.post(&more), Err(Stop::Full)));
    assert_eq!(bed.lane.facts().posted, 20 * PLACES as u64);
}

pub fn a_refusal_by_the_owner_is_no_effect_and_the_next_connection_works<F: Fabric>(mut bed: Bed<F>) {
    bed.connect(To::Regions);
    bed.run(&[bed.operation(Kind::Write, 0, 0)]).expect("write");
    // The owner opens the region anew, and the lane has not heard of it.
    let former = bed.home.close(REGION).expect("open");
    bed.unexpose(&former);
    bed.region = bed.home.open(&bed.far, REGION, 64, Access::ALL).expect("a region");
    drop(former);
    if bed.near.capabilities().load_store {
        // Here the table tells, before anything is posted.
        assert!(matches!(bed.post(&[bed.operation(Kind::Write, 0, 0)]), Err(Stop::NoRegion(REGION))));
        bed.expose_all();
        bed.home.publish(REGION);
        bed.run(&[bed.operation(Kind::Write, 0, 0)]).expect("write");
        assert!(matches!(bed.post(&[bed.operation(Kind::Write, 0, 8)]), Err(Stop::Refused(_))));
        return;
    }
    let batch = [bed.operation(Kind::Write, 0, 0), bed.operation(Kind::FetchAdd, 1, 1)];
    let last = bed.post(&batch).expect("posted");
    let error = bed.settle(last - 1).expect_err("refused");
    assert!(was_refused(&error), "{error}");
    assert_eq!((error.status, error.outcome), (Status::CompletionError, Outcome::NotExecuted));
    assert!(error.message.contains("rank 1, region 3: write of 8 bytes at offset 0: REM_ACCESS_ERR"), "{error}");
    assert_eq!(bed.lane.known(last), Some(Known::NotDone));
    assert!(matches!(bed.post(&batch), Err(Stop::Unconnected)));
    // Told once.
    assert!(bed.lane.last().1.is_some() && bed.lane.last().1.is_none());
    bed.connect(To::Regions);
    bed.run(&batch).expect("the new registration");
    assert_eq!(bed.lane.facts().generation, 2);
}

pub fn nothing_passes_a_closed_gate<F: Fabric>(mut bed: Bed<F>) {
    bed.connect(To::Regions);
    let id = bed.gate.close(crate::fabric::conformance::pair::patience()).expect("close");
    assert!(matches!(bed.post(&[bed.operation(Kind::Write, 0, 0)]), Err(Stop::Closed)));
    assert!(matches!(bed.lane.post_flush(&bed.gate), Err(Stop::Closed)));
    assert_eq!(bed.lane.facts().posted, 0);
    assert!(bed.gate.open(id));
    bed.run(&[bed.operation(Kind::Write, 0, 0)]).expect("open again");
    let flush = bed.lane.post_flush(&bed.gate).expect("flush");
    bed.settle(flush).expect("flushed");
}

pub fn an_atomic_that_is_asked_for_twice_is_executed_once<F: Fabric>(mut bed: Bed<F>) {
    bed.connect(To::Cells);
    let asker = Asker::<F>::new(&bed.near).expect("a desk");
    let request = AtomicRequest { sequence: 0, op: 1, region: REGION, offset: 0, operand: 5, swap: 0 };
    let asked = asker.begin(&bed.gate, request).expect("a cell");
    let send = |bed: &Bed<F>, operations: &[Operation]| {
        // SAFETY: the operations name the desk, which lives as long as the test.
        let sequence = unsafe { bed.lane.post(&bed.gate, operations, |_, _| Some(asker.key())) }.expect("posted");
        bed.settle(sequence).expect("settled");
    };
    send(&bed, &asker.send(asked));
    assert!(asker.answer(asked).is_none(), "nobody has served it");
    let serve = |bed: &mut Bed<F>| {
        let mut served = 0;
        // What was acknowledged may show a little later.
        for _ in 0..1000 {
            (bed.pump)();
            let mailbox = bed.mailbox.as_mut().expect("cells");
            served += mailbox.serve(&bed.home, &bed.dedupe);
        }
        served
    };
    assert_eq!(serve(&mut bed), 1);
    // The answer is there, and the lane fails before it is read.
    assert!(bed.lane.cut("for the test", false));
    bed.connect(To::Cells);
    send(&bed, &asker.send(asked));
    assert_eq!(serve(&mut bed), 1);
    send(&bed, &[asker.read(asked)]);
    assert_eq!(asker.answer(asked).expect("an answer").expect("executed"), 0);
    assert_eq!((bed.far_word(0).load(Ordering::Acquire), asker.under_way()), (5, 1));
    asker.end(asked);
    // Refusals are answers, too.
    let wrong = asker.begin(&bed.gate, AtomicRequest { offset: 1 << 40, ..request }).expect("a cell");
    send(&bed, &asker.send(wrong));
    assert_eq!(serve(&mut bed), 1);
    send(&bed, &[asker.read(wrong)]);
    let error = asker.answer(wrong).expect("an answer").expect_err("refused");
    assert!(error.message.contains("do not lie in the region"), "{error}");
}

/// Makes one `#[test]` of each. `$bed`: makes an unconnected bed.
macro_rules! suite {
    ($bed:expr; $($name:ident)*) => {
        $(#[test]
        fn $name() {
            $crate::memory::tests::suite::$name($bed);
        })*
    };
    ($bed:expr) => {
        $crate::memory::tests::suite::suite!($bed;
            operations_do_what_they_say
            a_batch_is_in_order_and_a_full_log_takes_nothing
            a_refusal_by_the_owner_is_no_effect_and_the_next_connection_works
            nothing_passes_a_closed_gate
            an_atomic_that_is_asked_for_twice_is_executed_once
        );
    };
}
pub(crate) use suite;
