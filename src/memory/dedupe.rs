//! What was executed for whom: the reason why an atomic that is asked for twice is executed once.
//!
//! An asking rank is known by its incarnation. It has [`CELLS`] requests under way at most, one per cell, and does not use
//! a cell again before its answer has come; so one entry per cell is all that has to be remembered, and a request also
//! acknowledges the earlier ones of its cell. Ranks that are gone stay known, the oldest go first. Pure; its contents are
//! plain data, for a checkpoint keeps them beside the memory that they speak of.

#![forbid(unsafe_code)]

use crate::ids::Incarnation;
use crate::wire::region::CELLS;
use std::collections::BTreeMap;

/// Most asking ranks that are known, gone ones included.
pub const ASKERS_MAX: usize = 4096;

/// What was executed last in one cell of one asking rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Executed {
    /// Who asked.
    pub incarnation: Incarnation,
    /// In which cell.
    pub cell: u32,
    /// The request's number; 0 for none.
    pub sequence: u64,
    /// How it was answered.
    pub status: u32,
    /// The old value.
    pub value: u64,
}

/// What to do with a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Execute it, then [`Dedupe::record`].
    Execute,
    /// It was executed: answer this status and value again.
    Repeat(u32, u64),
    /// A later one was executed in its cell: its asker has had its answer.
    Stale,
}

#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    sequence: u64,
    status: u32,
    value: u64,
}

#[derive(Debug)]
struct Asker {
    cells: [Cell; CELLS],
    /// When it was met, counted.
    met: u64,
}

/// The table.
#[derive(Debug, Default)]
pub struct Dedupe {
    askers: BTreeMap<u128, Asker>,
    met: u64,
}

impl Dedupe {
    /// What to do with this request.
    #[must_use]
    pub fn judge(&self, incarnation: Incarnation, cell: usize, sequence: u64) -> Verdict {
        let known =
            self.askers.get(&incarnation.0).and_then(|asker| asker.cells.get(cell)).copied().unwrap_or_default();
        match sequence.cmp(&known.sequence) {
            core::cmp::Ordering::Greater => Verdict::Execute,
            core::cmp::Ordering::Equal => Verdict::Repeat(known.status, known.value),
            core::cmp::Ordering::Less => Verdict::Stale,
        }
    }

    /// It was executed. An older number than the one that is known changes nothing.
    pub fn record(&mut self, executed: Executed) {
        self.meet(executed.incarnation);
        let Some(asker) = self.askers.get_mut(&executed.incarnation.0) else { return };
        let Some(cell) = asker.cells.get_mut(executed.cell as usize) else { return };
        if executed.sequence > cell.sequence {
            *cell = Cell { sequence: executed.sequence, status: executed.status, value: executed.value };
        }
    }

    fn meet(&mut self, incarnation: Incarnation) {
        if self.askers.contains_key(&incarnation.0) {
            return;
        }
        if self.askers.len() >= ASKERS_MAX
            && let Some(oldest) = self.askers.iter().min_by_key(|(_, asker)| asker.met).map(|(who, _)| *who)
        {
            self.askers.remove(&oldest);
        }
        self.met += 1;
        self.askers.insert(incarnation.0, Asker { cells: [Cell::default(); CELLS], met: self.met });
    }

    /// Everything, in the order in which the asking ranks were met.
    #[must_use]
    pub fn export(&self) -> Vec<Executed> {
        let mut askers: Vec<_> = self.askers.iter().collect();
        askers.sort_by_key(|(_, asker)| asker.met);
        let cells = askers.into_iter().flat_map(|(who, asker)| (0_u32..).zip(&asker.cells).map(move |c| (*who, c)));
        let used = cells.filter(|(_, (_, cell))| cell.sequence != 0);
        let executed = used.map(|(who, (number, cell))| Executed {
            incarnation: Incarnation(who),
            cell: number,
            sequence: cell.sequence,
            status: cell.status,
            value: cell.value,
        });
        executed.collect()
    }

    /// Takes over what a checkpoint kept. Entries that cannot be (a cell beyond the last) are left out.
    pub fn import(&mut self, executed: &[Executed]) {
        executed.iter().for_each(|one| self.record(*one));
    }
}

// Numbers of these tests are small.
#[cfg(test)]
#[allow(clippy::cast_possible_truncation)]
mod tests {
    use super::*;

    fn executed(who: u128, cell: u32, sequence: u64, value: u64) -> Executed {
        Executed { incarnation: Incarnation(who), cell, sequence, status: 0, value }
    }

    #[test]
    fn a_repetition_is_answered_and_not_executed() {
        let mut dedupe = Dedupe::default();
        let who = Incarnation(7);
        assert_eq!(dedupe.judge(who, 3, 1), Verdict::Execute);
        dedupe.record(executed(7, 3, 1, 40));
        assert_eq!(dedupe.judge(who, 3, 1), Verdict::Repeat(0, 40));
        assert_eq!(dedupe.judge(who, 4, 1), Verdict::Execute);
        assert_eq!(dedupe.judge(Incarnation(8), 3, 1), Verdict::Execute);
        dedupe.record(executed(7, 3, 17, 41));
        assert_eq!(dedupe.judge(who, 3, 1), Verdict::Stale);
        dedupe.record(executed(7, 3, 1, 99));
        assert_eq!(dedupe.judge(who, 3, 17), Verdict::Repeat(0, 41));
    }

    #[test]
    fn it_is_bounded_and_survives_a_checkpoint() {
        let mut dedupe = Dedupe::default();
        for who in 1..=ASKERS_MAX as u128 + 2 {
            dedupe.record(executed(who, 0, 5, who as u64));
        }
        assert_eq!(dedupe.judge(Incarnation(2), 0, 5), Verdict::Execute);
        assert_eq!(dedupe.judge(Incarnation(3), 0, 5), Verdict::Repeat(0, 3));
        let mut other = Dedupe::default();
        let kept = dedupe.export();
        other.import(&kept);
        other.import(&[executed(9, 99, 1, 1)]);
        assert_eq!((kept.len(), other.export()), (ASKERS_MAX, kept));
    }
}
