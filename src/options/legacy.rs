//! Names that older systems had and that have no meaning here. They are refused with the reason, so that nobody believes
//! that a setting took effect.

use super::names::shown;
use crate::error::{Error, Result, Status};

/// Values of a name of the past that still say the truth, and are taken without effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Accepted {
    /// None of them.
    Nothing,
    /// This one.
    Word(&'static str),
    /// Any number: it qualified a thing that is off.
    AnyNumber,
}

/// A name of the past.
#[derive(Clone, Copy, Debug)]
pub struct Legacy {
    /// The name, spelled with dashes.
    pub name: &'static str,
    /// What is not refused.
    pub accepted: Accepted,
    /// Why it is gone and what to use.
    pub reason: &'static str,
}

const fn gone(name: &'static str, reason: &'static str) -> Legacy {
    Legacy { name, accepted: Accepted::Nothing, reason }
}

/// One that may be switched off.
const fn off(name: &'static str, reason: &'static str) -> Legacy {
    Legacy { name, accepted: Accepted::Word("0"), reason }
}

const SLOTS: &str = "payloads travel in the request slots of the lanes; use rdma-rc-request-slot-bytes";
const ARENAS: &str = "buffers are allocated by size when they are asked for; nothing is set aside beforehand";
const BENCHMARK: &str = "it made wrong answers for measurements; `reclane bench` measures the parts instead";
const ONE_CLIENT: &str = "one client handle serves all threads of its process; use client-id and num-client-processes";
const NUMA: &str = "a process has one NUMA node; use numa-id in each";
const TRACE: &str = "requests are traced as events; use log-level and log-file";

/// All of them.
pub const LEGACY: &[Legacy] = &[
    gone("rdma-put-v2-push-slot-bytes", SLOTS),
    gone("rdma-put-v2-push-slots-per-client", SLOTS),
    gone("rdma-put-v2-push-region-offset", SLOTS),
    gone("rdma-client-receive-arena-bytes", ARENAS),
    gone("rdma-put-client-send-arena-bytes", ARENAS),
    gone("rdma-put-server-scratch-bytes", SLOTS),
    gone("rdma-per-thread-response-limit-bytes", "answers are bounded by their slot; use rdma-rc-response-slot-bytes"),
    gone("rdma-rc-mtu-bytes", "answers are bounded by their slot; use rdma-rc-response-slot-bytes"),
    gone("rdma-rc-target-response-mtu", "answers are bounded by their slot; use rdma-rc-response-slot-bytes"),
    gone("rdma-server-ready-timeout-sec", "use rdma-control-plane-timeout-ms, in milliseconds"),
    gone("rdma-server-ready-poll-ms", "clients are told when servers are ready, nothing is polled"),
    gone("rdma-rc-client-id-base", ONE_CLIENT),
    gone("rdma-rc-num-logical-clients", ONE_CLIENT),
    gone("rdma-rc-client-numa-id", NUMA),
    gone("rdma-rc-server-numa-id", NUMA),
    gone("rdma-rc-fake-get-mode", BENCHMARK),
    gone("rdma-rc-skip-client-copy", BENCHMARK),
    gone("rdma-adapter-skip-prefetch-result-copy", BENCHMARK),
    off("rdma-adapter-profile", "use rdma-rc-profile-interval-ms"),
    off("rdma-get-trace", TRACE),
    Legacy { name: "rdma-get-trace-interval", accepted: Accepted::AnyNumber, reason: TRACE },
    gone("config-path", "use deployment-file for the deployment; what else it held are options, set by name"),
    gone("use-dram", "the table lives in memory; nothing else is offered"),
    gone("use-local-memcached", "the control plane is served by shard 0; use rdma-control-plane-host and -port"),
    Legacy {
        name: "rdma-transport-mode",
        accepted: Accepted::Word("rc_write"),
        reason: "there is one transport, rc_write; use fabric to choose what carries it",
    },
];

impl Legacy {
    /// Refuses the setting, unless the value still says the truth.
    pub(super) fn check(&self, value: &str, origin: &str) -> Result<()> {
        let is_accepted = match self.accepted {
            Accepted::Nothing => false,
            Accepted::Word(word) => super::names::same_word(word, value),
            Accepted::AnyNumber => value.parse::<u64>().is_ok(),
        };
        if is_accepted {
            return Ok(());
        }
        let value = shown(value);
        let message = format!("option {} ({origin}), value {value}, is no longer taken: {}", self.name, self.reason);
        Err(Error::new(Status::Unsupported, message))
    }
}
