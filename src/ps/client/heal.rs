//! What a request does when its lane is lost or its answer does not come: count its time, ask about the shard, be sent
//! again, or fail.

use super::PsClient;
use super::record::Record;
use super::tally::fault;
use crate::error::{Error, Outcome, StatusClass};
use crate::fabric::Fabric;
use crate::rpc::{Channel, Held, Resend};
use crate::sync::{AtomicBool, AtomicU64, OnceLock, Ordering};
use crate::time::Tick;
use core::fmt;
use core::time::Duration;

/// Requests to other shards are noted to be slow no more often than this: there may be very many slots.
const NOTED_EVERY_NS: u64 = 10_000_000;

/// Shards that requests have waited for long, and who is told.
#[derive(Default)]
pub(super) struct Concerns {
    /// When the requests to all shards were last noted to be slow, in nanoseconds; 0: never.
    noted: AtomicU64,
    shards: Box<[AtomicBool]>,
    told: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl fmt::Debug for Concerns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Concerns").field("shards", &self.shards).finish_non_exhaustive()
    }
}

impl Concerns {
    pub(super) fn new(shards: usize) -> Concerns {
        let shards = (0..shards).map(|_| AtomicBool::new(false)).collect();
        Concerns { noted: AtomicU64::new(0), shards, told: OnceLock::new() }
    }
}

impl<F: Fabric> PsClient<F> {
    /// Whom to tell, from any thread, that a request has waited long for its shard; the first one counts.
    pub fn when_concerned(&self, tell: impl Fn() + Send + Sync + 'static) {
        // A second one is not needed and not heard.
        let _ = self.concerns.told.set(Box::new(tell));
    }

    /// Shards that requests have waited long for since the last call.
    pub fn take_concerns(&self) -> Vec<u32> {
        let concerned = |(index, flag): (u32, &AtomicBool)| flag.swap(false, Ordering::Relaxed).then_some(index);
        (0..).zip(&self.concerns.shards).filter_map(concerned).collect()
    }

    /// Since when a request waits that is found slow for the first time now. Those that are waited for later wait from now
    /// on as well: with a shard that has fallen silent they end together, not one after the other.
    #[cold]
    pub(super) fn slow_from(&self, channel: &Channel<F, Record>, held: Held, at: Tick) -> Tick {
        if let Some(known) = channel.slow_since(held) {
            return known;
        }
        let last = self.concerns.noted.load(Ordering::Relaxed);
        if last == 0 || at.0.saturating_sub(last) >= NOTED_EVERY_NS {
            self.concerns.noted.store(at.0.max(1), Ordering::Relaxed);
            self.channels.iter().for_each(|channel| channel.mark_slow(at));
        } else {
            channel.mark_slow(at);
        }
        at
    }

    /// A request has waited this long for its answer: from time to time somebody is to ask about the shard.
    #[cold]
    pub(super) fn consider_asking(&self, shard: u32, record: &mut Record, waited: Duration) {
        let after = self.options.health_after;
        if after.is_zero() || waited < after || waited < record.ask_at {
            return;
        }
        record.ask_at = waited.saturating_add(self.options.health_every);
        if let Some(flag) = self.concerns.shards.get(shard as usize) {
            flag.store(true, Ordering::Relaxed);
            if let Some(tell) = self.concerns.told.get() {
                tell();
            }
        }
    }

    /// Whether a call that failed so may be made again: nothing was executed, and its shard's lanes are being rebuilt.
    #[cold]
    pub(super) fn may_wait(&self, error: &Error) -> bool {
        let lost = matches!(error.status.class(), StatusClass::Lane | StatusClass::Peer);
        let channel = error.shard.and_then(|shard| self.channels.get(shard as usize));
        self.options.retry
            && lost
            && error.outcome == Outcome::NotExecuted
            && channel.is_some_and(|channel| channel.has_hope(&self.options.rebuild))
    }

    /// A request was sent, and its connection has ended. True: it is under way again, or may be soon. Otherwise the error
    /// says why not, and what is known of its execution.
    #[cold]
    pub(super) fn send_again(
        &self,
        channel: &Channel<F, Record>,
        held: Held,
        record: &mut Record,
        error: &mut Error,
    ) -> bool {
        if !self.options.retry {
            return false;
        }
        // A server that is only late may still write the rows of its answer there, behind those of the next one.
        if record.lands() && !channel.peer_is_gone(held) {
            error.message.push_str("; a GET into a buffer is not sent again while the shard may still write there");
            return false;
        }
        // SAFETY: the token's holder is the only thread on this request; what it names is valid until it is done.
        match unsafe { channel.resend(held) } {
            Resend::Sent => {
                self.count_fault(channel.shard(), fault::RETRIES);
                record.sent_again();
                true
            }
            Resend::NotNow => channel.has_hope(&self.options.rebuild),
            Resend::Never(why) => {
                error.message.push_str("; it was not sent again: ");
                error.message.push_str(why);
                false
            }
        }
    }
}
