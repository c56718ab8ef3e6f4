//! The operation log: what was posted on a lane and what is known of it. Filled at post time, because a device cannot be
//! asked later what it was given.
//!
//! Operations of a lane are numbered from 1 on, over all its connections. The log is a ring: an entry is written when its
//! operation is posted and judged when it completes, or when its connection fails. Posted operations are settled in order,
//! for a connection completes in order. Pure: no clock, no fabric.

#![forbid(unsafe_code)]

use crate::fabric::WcStatus;

/// What an operation does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// Local bytes to the region.
    Write = 1,
    /// The region's bytes here.
    Read = 2,
    /// Adds to 8 bytes and gives the old value.
    FetchAdd = 3,
    /// Swaps 8 bytes if they are equal and gives the old value.
    CompareSwap = 4,
}

/// What is known of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Known {
    /// Posted, not settled.
    UnderWay = 0,
    /// Its effect is in the peer's memory, its result is here.
    Done = 1,
    /// It had no effect and will have none.
    NotDone = 2,
    /// Nobody can tell by what is here.
    Ambiguous = 3,
    /// An atomic whose effect is in the peer's memory, and whose old value is lost.
    ResultLost = 4,
}

/// One operation, as it was posted. Half a cache line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// Byte offset in the region.
    pub offset: u64,
    /// Where an atomic's old value goes in this process, or 0.
    pub result: u64,
    /// Length in bytes.
    pub bytes: u32,
    /// The region.
    pub region: u32,
    /// Which registration of it was used.
    pub n: u32,
    /// What it does.
    pub kind: Kind,
    /// What is known of it.
    pub known: Known,
}

const EMPTY: Record =
    Record { offset: 0, result: 0, bytes: 0, region: 0, n: 0, kind: Kind::Write, known: Known::NotDone };

/// What a failed connection's error says of the operation that it was reported for, and of those behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Judgement {
    first: Known,
    behind: Known,
}

/// Judges by the status that ended a connection.
///
/// A responder that refuses (REM_ACCESS and its relatives) has not executed and executes nothing more of the connection.
/// A requester whose retries ran out may have lost the answer only, and what was behind may have travelled with it. A
/// local refusal may come when a part of the bytes has left.
#[must_use]
pub fn judge(status: WcStatus) -> Judgement {
    match status {
        WcStatus::RemAccess | WcStatus::RemInvReq | WcStatus::RnrRetryExc | WcStatus::LocQpOp => {
            Judgement { first: Known::NotDone, behind: Known::NotDone }
        }
        _ => Judgement { first: Known::Ambiguous, behind: Known::Ambiguous },
    }
}

impl Judgement {
    /// Nothing that was not completed had an effect.
    pub const NOTHING: Judgement = Judgement { first: Known::NotDone, behind: Known::NotDone };

    fn of(known: Known, kind: Kind) -> Known {
        // A read changes nothing: one that has not brought its bytes can always be made again.
        if kind == Kind::Read { Known::NotDone } else { known }
    }
}

/// The log of one lane.
#[derive(Debug)]
pub struct Log {
    ring: Box<[Record]>,
    posted: u64,
    retired: u64,
    tally: Tally,
}

/// What was posted, by what it does (the kind's number less one), and what of it ended with its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Operations.
    pub operations: [u64; 4],
    /// Their bytes.
    pub bytes: [u64; 4],
    /// Those that had no effect.
    pub not_executed: u64,
    /// Those of which nobody could tell when the connection ended.
    pub unknown: u64,
}

impl Log {
    /// A log with this many places, a power of two.
    #[must_use]
    pub fn new(places: usize) -> Log {
        assert!(places.is_power_of_two());
        Log { ring: vec![EMPTY; places].into_boxed_slice(), posted: 0, retired: 0, tally: Tally::default() }
    }

    /// Number of the operation posted last.
    #[inline]
    #[must_use]
    pub fn posted(&self) -> u64 {
        self.posted
    }

    /// Number up to which all are settled.
    #[inline]
    #[must_use]
    pub fn retired(&self) -> u64 {
        self.retired
    }

    /// What was posted and what was lost, in numbers.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Operations that can be posted now.
    #[inline]
    #[must_use]
    pub fn room(&self) -> usize {
        // What is under way is at most the ring's length.
        self.ring.len() - usize::try_from(self.posted - self.retired).unwrap_or(self.ring.len())
    }

    /// The ring's place of an operation.
    #[inline]
    #[must_use]
    pub fn place(&self, sequence: u64) -> usize {
        // Truncation is meant: the mask takes the low bits.
        #[allow(clippy::cast_possible_truncation)]
        let low = sequence as usize;
        low & (self.ring.len() - 1)
    }

    /// Notes an operation that is about to be posted; the caller has seen that there is room. Its number.
    #[inline]
    pub fn push(&mut self, record: Record) -> u64 {
        self.posted += 1;
        let kind = (record.kind as usize - 1) & 3;
        self.tally.operations[kind] += 1;
        self.tally.bytes[kind] += u64::from(record.bytes);
        let place = self.place(self.posted);
        self.ring[place] = record;
        self.posted
    }

    /// The operation and all before it are done; `each` sees those whose result is to be fetched, with their place.
    #[inline]
    pub fn done(&mut self, sequence: u64, mut each: impl FnMut(usize, &Record)) {
        let last = sequence.min(self.posted);
        while self.retired < last {
            self.retired += 1;
            let place = self.place(self.retired);
            let record = &mut self.ring[place];
            record.known = Known::Done;
            if record.result != 0 {
                each(place, record);
            }
        }
    }

    /// The connection has ended with this judgement on the first operation that is not settled. All are settled by it.
    /// First and last number concerned, if any.
    pub fn fail(&mut self, judgement: Judgement) -> Option<(u64, u64)> {
        let first = self.retired + 1;
        if first > self.posted {
            return None;
        }
        for sequence in first..=self.posted {
            let place = self.place(sequence);
            let known = if sequence == first { judgement.first } else { judgement.behind };
            let record = &mut self.ring[place];
            record.known = Judgement::of(known, record.kind);
            if record.known == Known::NotDone {
                self.tally.not_executed += 1;
            } else {
                self.tally.unknown += 1;
            }
        }
        self.retired = self.posted;
        Some((first, self.posted))
    }

    /// The responder has shown, after it can execute nothing more of the old connection, that it executed up to this
    /// number. Only presence proves: what is behind stays as it was judged.
    pub fn proved(&mut self, sequence: u64) {
        let oldest = self.posted.saturating_sub(self.ring.len() as u64) + 1;
        for number in oldest..=sequence.min(self.posted) {
            let place = self.place(number);
            let record = &mut self.ring[place];
            if record.known == Known::Ambiguous {
                record.known = if record.kind == Kind::Write { Known::Done } else { Known::ResultLost };
            }
        }
    }

    /// An operation of the ring; none when it was never posted or is too long ago.
    #[must_use]
    pub fn get(&self, sequence: u64) -> Option<&Record> {
        let kept = sequence != 0 && sequence <= self.posted && self.posted - sequence < self.ring.len() as u64;
        kept.then(|| &self.ring[self.place(sequence)])
    }

    /// The newest operations, oldest first, at most `most`.
    pub fn newest(&self, most: usize) -> impl Iterator<Item = (u64, &Record)> {
        let count = self.posted.min(most.min(self.ring.len()) as u64);
        (self.posted - count + 1..=self.posted).filter_map(|number| Some((number, self.get(number)?)))
    }
}

// Numbers of these tests are small.
#[cfg(test)]
#[allow(clippy::cast_possible_truncation)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(kind: Kind) -> Record {
        Record { kind, known: Known::UnderWay, result: u64::from(kind as u8 > 2), ..EMPTY }
    }

    #[test]
    fn a_refusal_is_known_and_a_silence_is_not() {
        for (status, first, behind) in [
            (WcStatus::RemAccess, Known::NotDone, Known::NotDone),
            (WcStatus::RetryExc, Known::Ambiguous, Known::Ambiguous),
            (WcStatus::WrFlush, Known::Ambiguous, Known::Ambiguous),
        ] {
            let mut log = Log::new(8);
            (0..4).for_each(|_| assert_ne!(log.push(record(Kind::Write)), 0));
            log.done(2, |_, _| {});
            assert_eq!(log.fail(judge(status)), Some((3, 4)));
            let known = [1, 2, 3, 4].map(|number| log.get(number).expect("kept").known);
            assert_eq!(known, [Known::Done, Known::Done, first, behind]);
            assert_eq!((log.fail(judge(status)), log.room()), (None, 8));
        }
    }

    #[test]
    fn evidence_proves_what_it_covers_and_nothing_else() {
        let mut log = Log::new(8);
        for kind in [Kind::Write, Kind::FetchAdd, Kind::Read, Kind::Write] {
            log.push(record(kind));
        }
        log.fail(judge(WcStatus::RetryExc));
        log.proved(3);
        let known = [1, 2, 3, 4].map(|number| log.get(number).expect("kept").known);
        assert_eq!(known, [Known::Done, Known::ResultLost, Known::NotDone, Known::Ambiguous]);
    }

    #[test]
    fn old_operations_leave_the_ring() {
        let mut log = Log::new(2);
        for number in 1..=5 {
            log.push(record(Kind::Write));
            log.done(number, |_, _| {});
        }
        assert!(log.get(3).is_none() && log.get(0).is_none() && log.get(6).is_none());
        assert_eq!(log.newest(9).map(|(number, _)| number).collect::<Vec<_>>(), [4, 5]);
    }

    proptest! {
        #[test]
        fn every_operation_is_settled_once_and_in_order(steps in prop::collection::vec((0_u8..4, 1_u64..9), 0..200)) {
            let mut log = Log::new(16);
            let mut model: Vec<Known> = Vec::new();
            for (step, many) in steps {
                match step {
                    0 => for _ in 0..many.min(log.room() as u64) {
                        log.push(record(Kind::FetchAdd));
                        model.push(Known::UnderWay);
                    },
                    1 => {
                        let upto = (log.retired() + many).min(log.posted());
                        let mut seen = 0;
                        let before = log.retired();
                        log.done(upto, |_, _| seen += 1);
                        prop_assert_eq!(seen, upto.saturating_sub(before));
                        for known in &mut model[before as usize..upto.max(before) as usize] {
                            *known = Known::Done;
                        }
                    }
                    2 => {
                        let before = log.retired() as usize;
                        log.fail(judge(WcStatus::RetryExc));
                        model[before..].iter_mut().for_each(|known| *known = Known::Ambiguous);
                    }
                    _ => {
                        log.proved(log.retired());
                        let oldest = model.len().saturating_sub(16);
                        for known in &mut model[oldest..] {
                            if *known == Known::Ambiguous { *known = Known::ResultLost; }
                        }
                    }
                }
                prop_assert!(log.retired() <= log.posted());
                for (number, record) in log.newest(16) {
                    prop_assert_eq!(record.known, model[number as usize - 1]);
                }
            }
        }
    }
}
