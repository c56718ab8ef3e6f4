//! Deliberate mistakes around checkpoints, to show that simulated worlds notice them. They are made in the simulation's
//! own glue between the machines, where the engine's threads are otherwise: the product has no trace of them.

macro_rules! mistakes {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal,)+) => {
        /// One mistake.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Mistake {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Mistake {
            /// All of them.
            pub const ALL: &'static [Mistake] = &[$(Mistake::$name,)+];

            /// The name in reports.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Mistake::$name => $text,)+
                }
            }
        }
    };
}

mistakes! {
    /// The manifest is written before the data that it vouches for is synced.
    DataNotSynced = "data_not_synced",
    /// The manifest is written when the first shard has written, not when all have.
    CommitWithoutAll = "commit_without_all",
    /// Requests go on while state is copied.
    GateOpensBeforeCopy = "gate_opens_before_copy",
    /// A shard says that it is held, and is not.
    GateIgnored = "gate_ignored",
    /// A shard copies when it is held itself, and goes on, whether the others are held or not.
    CutsAlone = "cuts_alone",
    /// A held shard waits for a leader that has fallen silent.
    WaitsForSilentLeader = "waits_for_silent_leader",
    /// What was executed for clients is not in the checkpoint.
    WindowsNotSaved = "windows_not_saved",
    /// What was executed for clients is in the checkpoint, and is not read.
    WindowsNotRestored = "windows_not_restored",
    /// A client that has seen what was undone is let in although it should open again.
    ZombieClientLetIn = "zombie_client_let_in",
    /// A restore does not keep a leader of the world before from committing.
    ZombieLeaderNotFenced = "zombie_leader_not_fenced",
    /// Files are not read whole before one is chosen.
    RestoreNotVerified = "restore_not_verified",
    /// The last shard starts from an older checkpoint than the others.
    OneShardRestoresAnother = "one_shard_restores_another",
    /// One committed checkpoint is kept.
    KeepsOne = "keeps_one",
    /// An incremental one builds on a file that was never committed.
    BuildsOnAborted = "builds_on_aborted",
}
