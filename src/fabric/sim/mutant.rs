//! Deliberate mistakes, to show that simulated worlds notice them.
//!
//! The places that can be told to make one ask [`mutated`], which is false at compile time on every fabric but this one:
//! the code for real fabrics does not contain them.

use crate::fabric::Fabric;
use core::cell::Cell;

macro_rules! mutants {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal,)+) => {
        /// One mistake.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Mutant {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Mutant {
            /// All of them.
            pub const ALL: &'static [Mutant] = &[$(Mutant::$name,)+];

            /// The name in reports.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Mutant::$name => $text,)+
                }
            }
        }
    };
}

mutants! {
    /// The header of a request is posted before its payload.
    CommitBeforePayload = "commit_before_payload",
    /// A slot of a rebuilt lane stays on its old connection.
    SlotIgnoresGeneration = "slot_ignores_generation",
    /// The server acts on the same commit word again.
    ServerIgnoresSequence = "server_ignores_sequence",
    /// The server does not compare the checksum under scheme crc.
    ServerSkipsChecksum = "server_skips_checksum",
    /// The client does not compare the checksum under scheme crc.
    ClientSkipsChecksum = "client_skips_checksum",
    /// The client judges the sequence of an answer before its checksum.
    ClientJudgesTornHeader = "client_judges_torn_header",
    /// The client takes any word of its generation for its answer.
    ClientIgnoresSequence = "client_ignores_sequence",
    /// A slot whose answer did not come in time is used again on the same connection.
    TimeoutKeepsLane = "timeout_keeps_lane",
    /// Requests wait for ever.
    NoDeadline = "no_deadline",
    /// A finished request keeps its slot.
    SlotNotReleased = "slot_not_released",
    /// Lanes of a client that left stay.
    LanesOfTheDeadStay = "lanes_of_the_dead_stay",
    /// A shard does not remember what it executed.
    NoDedupe = "no_dedupe",
    /// A request is sent again to a shard that has lost its memory of it.
    WitnessIgnored = "witness_ignored",
    /// A repetition is a request of its own.
    RepetitionHasNewIdentity = "repetition_has_new_identity",
    /// A batch of which a part was executed is called undone.
    BatchCalledUndone = "batch_called_undone",
    /// A key of a part that may have been executed is called undone.
    DoubtCalledUndone = "doubt_called_undone",
    /// The shard settles what it remembers under the identity of nobody.
    SettleForgotten = "settle_forgotten",
    /// The receiver executes packets that it has executed before.
    DuplicatesExecuted = "duplicates_executed",
    /// The receiver executes packets out of order.
    GapsAccepted = "gaps_accepted",
}

thread_local!(static PRESENT: Cell<Option<Mutant>> = const { Cell::new(None) });

/// Makes this thread's simulated world make the mistake from now on; None: none.
pub fn set_mutant(mutant: Option<Mutant>) {
    PRESENT.set(mutant);
}

/// Whether a mistake is to be made here. Always false, at compile time, unless `F` is simulated.
#[inline(always)]
#[must_use]
pub fn mutated<F: Fabric>(mutant: Mutant) -> bool {
    F::SIMULATED && PRESENT.get() == Some(mutant)
}
