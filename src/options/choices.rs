//! Options whose value is one of a few words.

use super::value::{FromValue, Value};

macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $($(#[$word_doc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum $name { $($(#[$word_doc])* $variant,)+ }

        impl $name {
            /// The words, in the order of the variants.
            pub const WORDS: &'static [&'static str] = &[$($word),+];
            const ALL: &'static [$name] = &[$($name::$variant),+];

            /// The word that stands for this variant.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $($name::$variant => $word),+ }
            }

            /// The variant that this word stands for.
            #[must_use]
            pub fn from_word(word: &str) -> Option<$name> {
                $name::ALL.iter().copied().find(|variant| variant.word() == word)
            }
        }

        impl FromValue for $name {
            const WORDS: &'static [&'static str] = $name::WORDS;

            fn from_value(value: &Value) -> $name {
                match value {
                    Value::Word(word) => $name::from_word(word).unwrap_or($name::ALL[0]),
                    _ => $name::ALL[0],
                }
            }

            fn to_value(&self) -> Value {
                Value::Word(self.word())
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(self.word())
            }
        }
    };
}

pub(super) use choice;

choice! {
    /// Whether shards start from a checkpoint.
    CheckpointRestore {
        /// Empty.
        Off = "off",
        /// From the newest that is whole, if there ever was one.
        Latest = "latest",
        /// From one, or not at all.
        Require = "require",
    }
}

choice! {
    /// What becomes of clients that lived through a restore.
    CheckpointSurvivors {
        /// They must open again.
        Refuse = "refuse",
        /// They go on.
        Resume = "resume",
    }
}

choice! {
    /// What moves bytes.
    FabricKind {
        /// Processes of one host over shared memory.
        Shm = "shm",
        /// RDMA hardware.
        Verbs = "verbs",
    }
}

choice! {
    /// How packets of real RDMA look.
    RdmaMode {
        /// InfiniBand.
        Ib = "ib",
        /// RDMA over Ethernet frames of their own kind; not routed.
        RoceV1 = "rocev1",
        /// RDMA over UDP.
        RoceV2 = "rocev2",
    }
}

choice! {
    /// Who vouches for the order in which a device's writes become visible.
    DataInOrder {
        /// The device is asked.
        Auto = "auto",
        /// The operator.
        Yes = "yes",
        /// Nobody.
        No = "no",
    }
}

choice! {
    /// How the reader of a slot knows that all of it has arrived.
    CommitScheme {
        /// The best that the fabric allows, chosen per lane.
        Auto = "auto",
        /// One write whose last 8 bytes commit.
        Single = "single",
        /// The commit word counts only when the checksum agrees.
        Crc = "crc",
        /// Write with immediate.
        Imm = "imm",
    }
}

choice! {
    /// Which values the options of recovery have that are not given.
    RecoveryPreset {
        /// Those of their own defaults: nothing is rebuilt or sent again.
        Plain = "plain",
        /// Everything that heals is on.
        Resilient = "resilient",
    }
}

choice! {
    /// Whether a request whose lane was lost is sent again.
    RequestRetry {
        /// It fails.
        Off = "off",
        /// It is, and the shard executes it once.
        ExactlyOnce = "exactly-once",
    }
}

choice! {
    /// Whether requests and answers carry a checksum.
    Integrity {
        /// They do not.
        Off = "off",
        /// CRC32C over header and payload.
        Crc32c = "crc32c",
    }
}

choice! {
    /// How a GET's rows reach the client.
    GetResponseMode {
        /// The server's choice.
        Auto = "auto",
        /// Sent straight from the table's registered memory.
        DirectSg = "direct_sg",
        /// Gathered into a staging area first.
        StagingCopy = "staging_copy",
    }
}

choice! {
    /// Whether GETs read rows where they lie.
    SharedReads {
        /// Where client and shard share memory, and the table allows it.
        Auto = "auto",
        /// Never.
        Off = "off",
    }
}

choice! {
    /// How the rows of a PUT reach the server.
    PutTransferMode {
        /// The client writes them into the request slot.
        Push = "push",
        /// The server reads them from the client's registered buffer.
        Read = "read",
    }
}

choice! {
    /// Which shard owns a key.
    HashMethod {
        /// CityHash64 of the key's 8 bytes, modulo the number of shards.
        CityHash = "city_hash",
        /// The key modulo the number of shards.
        SimpleMod = "simple_mod",
    }
}

choice! {
    /// Whether large memory uses huge pages.
    HugePages {
        /// Transparent ones, where the kernel has them.
        Auto = "auto",
        /// Never.
        Off = "off",
        /// Always reserved ones; it is an error when there are none.
        On = "on",
    }
}

choice! {
    /// The least important event that is still written.
    LogLevel {
        /// Nothing.
        Off = "off",
        /// Something is lost.
        Error = "error",
        /// Something degraded.
        Warn = "warn",
        /// Life cycle.
        Info = "info",
        /// For diagnosis.
        Debug = "debug",
        /// Everything.
        Trace = "trace",
    }
}

choice! {
    /// Which process looks at an option.
    Side {
        /// Servers.
        Server = "server",
        /// Clients.
        Client = "client",
        /// Both.
        Both = "both",
    }
}
