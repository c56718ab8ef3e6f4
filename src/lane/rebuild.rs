//! The life of one lane on the client's side, and when it is connected anew.
//!
//! Active → Dirty → Rebuilding → Active, or Dead when it cannot help. An attempt takes one of a limited number of
//! attempts. With a refill time they come back with time, one after the other; without, they are all that a lane has in
//! its life. Each attempt is a connection with a generation of its own, so what an earlier one still brings is told from
//! the present one.
//!
//! A lane may begin its life unconnected: it is connected when requests first need it. Such an attempt costs none of the
//! limited number, and is made though rebuilding is off; one that fails is made again after the cooldown, when the lane is
//! needed again.

use super::state::{DirtyReason, LaneState};
use crate::time::Tick;
use core::time::Duration;

/// How lanes are rebuilt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RebuildPolicy {
    /// Whether they are at all.
    pub enabled: bool,
    /// Attempts that a lane has in hand at most.
    pub attempts_max: u32,
    /// Time after which one attempt comes back; None: never.
    pub refill: Option<Duration>,
    /// How long an attempt waits for each of the peer's two steps; with refilling attempts, the first after a success.
    pub wait: Duration,
    /// Least time between two attempts.
    pub cooldown: Duration,
    /// Differs from client to client, so that many do not try at the same moment. With refilling attempts only.
    pub spread: u64,
}

/// After so many failures in a row attempts, and the time between two, grow no more.
const DOUBLINGS_MAX: u32 = 4;

/// What a lane that is not Active should do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Want {
    /// Nothing: it carries requests, is being rebuilt, or is dead.
    Nothing,
    /// Not before this moment.
    Later(Tick),
    /// Rebuilding is off.
    Disabled,
    /// Connect with this generation; the attempt ends at the deadline.
    Begin {
        /// Of the new connection.
        generation: u32,
        /// Of the attempt.
        deadline: Tick,
    },
    /// It has just died: no attempt is left.
    Exhausted,
}

/// The life of one lane: its state, the first reason for leaving Active, and its attempts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lifecycle {
    state: LaneState,
    reason: Option<DirtyReason>,
    /// Of the present connection, or of the one that is being made.
    generation: u32,
    attempts: u32,
    spent: u32,
    refilled: Tick,
    failures: u32,
    last_attempt: Option<Tick>,
    deadline: Option<Tick>,
    dirty_since: Tick,
    /// A connection was made because the peer refused our key, and nothing else has ended one since.
    refreshed: bool,
}

impl Lifecycle {
    /// A lane whose connection of this generation is being made for the first time.
    #[must_use]
    pub fn new(generation: u32) -> Lifecycle {
        Lifecycle {
            state: LaneState::Connecting,
            reason: None,
            generation,
            attempts: 0,
            spent: 0,
            refilled: Tick(0),
            failures: 0,
            last_attempt: None,
            deadline: None,
            dirty_since: Tick(0),
            refreshed: false,
        }
    }

    /// A lane that is connected when it is needed.
    #[must_use]
    pub fn unconnected() -> Lifecycle {
        Lifecycle { state: LaneState::Unconnected, ..Lifecycle::new(0) }
    }

    /// Present state.
    #[must_use]
    pub fn state(&self) -> LaneState {
        self.state
    }

    /// Why it last left Active: the first reason; what follows from it is no news.
    #[must_use]
    pub fn reason(&self) -> Option<DirtyReason> {
        self.reason
    }

    /// Of the present connection, or of the one that is being made.
    #[must_use]
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Attempts in the lane's life.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// When it last left Active.
    #[must_use]
    pub fn dirty_since(&self) -> Tick {
        self.dirty_since
    }

    /// When the present attempt ends.
    #[must_use]
    pub fn deadline(&self) -> Option<Tick> {
        self.deadline
    }

    /// Connection `generation` is there. True if the lane is Active now.
    pub fn connected(&mut self, generation: u32) -> bool {
        let expected = matches!(self.state, LaneState::Connecting | LaneState::Rebuilding);
        if !expected || generation != self.generation {
            return false;
        }
        self.state = LaneState::Active;
        self.deadline = None;
        self.failures = 0;
        true
    }

    /// Connection `generation` failed. True if this ends Active: of an older connection, and of one that has ended, it is
    /// no news.
    pub fn failed(&mut self, now: Tick, generation: u32, reason: DirtyReason) -> bool {
        if reason == DirtyReason::Closed {
            let first = self.state != LaneState::Dead;
            self.state = LaneState::Dead;
            self.reason.get_or_insert(reason);
            return first;
        }
        if generation != self.generation {
            return false;
        }
        match self.state {
            LaneState::Connecting | LaneState::Active => {
                let again = reason.wants_refresh() && self.refreshed;
                self.refreshed = reason.wants_refresh();
                self.state = if reason.rebuildable() && !again { LaneState::Dirty } else { LaneState::Dead };
                self.reason = Some(reason);
                self.dirty_since = now;
                true
            }
            LaneState::Dirty if !reason.rebuildable() => {
                self.state = LaneState::Dead;
                false
            }
            LaneState::Rebuilding | LaneState::Dirty | LaneState::Dead | LaneState::Unconnected => false,
        }
    }

    /// What to do now. [`Want::Begin`] and [`Want::Exhausted`] have changed the state.
    pub fn want(&mut self, now: Tick, policy: &RebuildPolicy) -> Want {
        if self.state == LaneState::Unconnected {
            return match self.earliest(policy) {
                Some(earliest) if earliest > now => Want::Later(earliest),
                _ => self.begin(now, policy, LaneState::Connecting),
            };
        }
        if self.state != LaneState::Dirty {
            return Want::Nothing;
        }
        if !policy.enabled {
            return Want::Disabled;
        }
        if let Some(refill) = policy.refill {
            self.refill(now, refill);
        }
        if self.spent >= policy.attempts_max {
            return match policy.refill {
                Some(refill) => Want::Later(self.refilled.after(refill)),
                None => {
                    self.state = LaneState::Dead;
                    Want::Exhausted
                }
            };
        }
        if let Some(earliest) = self.earliest(policy).filter(|earliest| *earliest > now) {
            return Want::Later(earliest);
        }
        if self.spent == 0 {
            self.refilled = now;
        }
        self.spent += 1;
        self.attempts = self.attempts.saturating_add(1);
        self.begin(now, policy, LaneState::Rebuilding)
    }

    /// When the next attempt may begin; None: at once.
    fn earliest(&self, policy: &RebuildPolicy) -> Option<Tick> {
        self.last_attempt.map(|last| last.after(self.pause(policy)))
    }

    fn begin(&mut self, now: Tick, policy: &RebuildPolicy, state: LaneState) -> Want {
        self.generation += 1;
        self.state = state;
        self.last_attempt = Some(now);
        // Each of the two steps, the peer's answer and its echo, may take the whole time.
        let deadline = now.after(self.patience(policy).saturating_mul(2));
        self.deadline = Some(deadline);
        Want::Begin { generation: self.generation, deadline }
    }

    /// Whether [`want`](Lifecycle::want) will ever begin again: callers may wait for it.
    #[must_use]
    pub fn has_hope(&self, policy: &RebuildPolicy) -> bool {
        match self.state {
            LaneState::Connecting | LaneState::Active | LaneState::Rebuilding => true,
            // It is no way to a peer that the others have lost.
            LaneState::Unconnected => false,
            LaneState::Dirty => policy.enabled && (policy.refill.is_some() || self.spent < policy.attempts_max),
            LaneState::Dead => false,
        }
    }

    /// The attempt with this generation did not succeed. False: it is over already.
    pub fn attempt_failed(&mut self, generation: u32) -> bool {
        let before = match self.state {
            LaneState::Rebuilding => LaneState::Dirty,
            LaneState::Connecting => LaneState::Unconnected,
            _ => return false,
        };
        if generation != self.generation {
            return false;
        }
        self.state = before;
        self.deadline = None;
        self.failures = self.failures.saturating_add(1);
        true
    }

    /// The peer is another process than before: what was tried in vain meanwhile does not count against it. Without
    /// refill the attempts stay spent.
    pub fn peer_is_back(&mut self, policy: &RebuildPolicy) {
        self.failures = 0;
        self.refreshed = false;
        self.peer_is_heard(policy);
    }

    /// The same process is heard of again: it may be tried at once. What failed before still makes attempts longer: a peer
    /// with more to do than it has time for falls silent again and again, and must not be asked for more each time.
    pub fn peer_is_heard(&mut self, policy: &RebuildPolicy) {
        if policy.refill.is_some() {
            self.last_attempt = None;
            self.spent = 0;
        }
    }

    fn refill(&mut self, now: Tick, refill: Duration) {
        let step = u64::try_from(refill.as_nanos()).unwrap_or(u64::MAX).max(1);
        let back = now.since_ns(self.refilled) / step;
        if back > 0 {
            self.spent = self.spent.saturating_sub(u32::try_from(back).unwrap_or(u32::MAX));
            self.refilled = Tick(self.refilled.0.saturating_add(back.saturating_mul(step)));
        }
    }

    /// How long each step of an attempt may take. With refilling attempts it doubles with failures in a row: where many
    /// lanes of many clients come back at once, all attempts would otherwise end before the peer came to them, and be made
    /// anew, for ever.
    fn patience(&self, policy: &RebuildPolicy) -> Duration {
        let doublings = if policy.refill.is_some() { self.failures.min(DOUBLINGS_MAX) } else { 0 };
        policy.wait.saturating_mul(1 << doublings)
    }

    /// Time between the last attempt and the next. With refilling attempts it doubles with failures in a row, and up to
    /// half of it more is added, by who asks and how often.
    fn pause(&self, policy: &RebuildPolicy) -> Duration {
        if policy.refill.is_none() {
            return policy.cooldown;
        }
        let full = policy.cooldown.saturating_mul(1 << self.failures.min(DOUBLINGS_MAX));
        let seed = policy.spread ^ u64::from(self.attempts).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let share = u32::try_from(seed.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 56).unwrap_or(0);
        full + full / 512 * share
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::WcStatus;

    fn ms(ms: u64) -> Tick {
        Tick(0).after(Duration::from_millis(ms))
    }

    fn plain() -> RebuildPolicy {
        RebuildPolicy {
            enabled: true,
            attempts_max: 3,
            refill: None,
            wait: Duration::from_millis(2000),
            cooldown: Duration::from_millis(1000),
            spread: 0,
        }
    }

    fn active() -> Lifecycle {
        let mut lane = Lifecycle::new(1);
        assert!(lane.connected(1));
        lane
    }

    #[test]
    fn peer_side_failures_leave_hope_and_local_ones_do_not() {
        for (reason, state) in [
            (DirtyReason::Completion(WcStatus::RetryExc), LaneState::Dirty),
            (DirtyReason::Completion(WcStatus::RnrRetryExc), LaneState::Dirty),
            (DirtyReason::Completion(WcStatus::WrFlush), LaneState::Dirty),
            (DirtyReason::WaitTimeout, LaneState::Dirty),
            (DirtyReason::PeerGone, LaneState::Dirty),
            (DirtyReason::NodeVerdict, LaneState::Dirty),
            (DirtyReason::PostFailed, LaneState::Dirty),
            (DirtyReason::Completion(WcStatus::RemAccess), LaneState::Dirty),
            (DirtyReason::Completion(WcStatus::RemInvReq), LaneState::Dead),
            (DirtyReason::Completion(WcStatus::LocProt), LaneState::Dead),
            (DirtyReason::Completion(WcStatus(4711)), LaneState::Dead),
            (DirtyReason::Closed, LaneState::Dead),
        ] {
            let mut lane = active();
            assert!(lane.failed(ms(1), 1, reason), "{reason:?}");
            assert_eq!(lane.state(), state, "{reason:?}");
        }
    }

    #[test]
    fn the_first_reason_stays_and_dead_is_final() {
        let mut lane = active();
        assert!(lane.failed(ms(1), 1, DirtyReason::WaitTimeout));
        assert!(!lane.failed(ms(2), 1, DirtyReason::PeerGone));
        assert_eq!((lane.state(), lane.reason()), (LaneState::Dirty, Some(DirtyReason::WaitTimeout)));
        assert!(lane.failed(ms(3), 1, DirtyReason::Closed));
        assert_eq!(lane.state(), LaneState::Dead);
        assert!(!lane.connected(1));
        assert_eq!(lane.want(ms(9), &plain()), Want::Nothing);
    }

    #[test]
    fn a_budget_for_life_ends() {
        let (mut lane, policy) = (active(), plain());
        let mut now = 0;
        let mut generation = 1;
        for round in 0..3 {
            assert!(lane.failed(ms(now), generation, DirtyReason::PeerGone));
            if round > 0 {
                assert_eq!(lane.want(ms(now), &policy), Want::Later(ms(now + 1000)));
                now += 1000;
            }
            generation += 1;
            assert_eq!(lane.want(ms(now), &policy), Want::Begin { generation, deadline: ms(now + 4000) });
            assert_eq!(lane.want(ms(now), &policy), Want::Nothing);
            assert!(lane.connected(generation));
        }
        assert!(lane.failed(ms(now), generation, DirtyReason::PeerGone));
        assert!(!lane.has_hope(&policy));
        assert_eq!(lane.want(ms(now + 9999), &policy), Want::Exhausted);
        assert_eq!(lane.state(), LaneState::Dead);
    }

    #[test]
    fn a_bucket_refills_with_time() {
        let refill = Some(Duration::from_millis(100));
        let policy = RebuildPolicy { refill, cooldown: Duration::ZERO, ..plain() };
        let mut lane = active();
        lane.failed(ms(0), 1, DirtyReason::PeerGone);
        for _ in 0..3 {
            assert!(matches!(lane.want(ms(10), &policy), Want::Begin { .. }));
            assert!(lane.attempt_failed(lane.generation()));
        }
        assert_eq!(lane.want(ms(20), &policy), Want::Later(ms(110)));
        assert!(lane.has_hope(&policy));
        assert!(matches!(lane.want(ms(110), &policy), Want::Begin { .. }));
        assert!(lane.attempt_failed(lane.generation()));
        assert_eq!(lane.want(ms(111), &policy), Want::Later(ms(210)));
        lane.peer_is_back(&policy);
        assert!(matches!(lane.want(ms(112), &policy), Want::Begin { .. }));
    }

    #[test]
    fn attempts_grow_while_they_fail_until_one_succeeds_or_the_peer_is_another() {
        let refill = Some(Duration::from_millis(1));
        let policy = RebuildPolicy { refill, cooldown: Duration::ZERO, ..plain() };
        let mut lane = active();
        let mut now = 0;
        let mut lasts = |lane: &mut Lifecycle| {
            now += 1000;
            let Want::Begin { deadline, .. } = lane.want(ms(now), &policy) else { panic!("{lane:?}") };
            deadline.since_ns(ms(now)) / 1_000_000
        };
        lane.failed(ms(0), 1, DirtyReason::PeerGone);
        for expected in [4000, 8000, 16000, 32000, 64000, 64000] {
            assert_eq!(lasts(&mut lane), expected);
            assert!(lane.attempt_failed(lane.generation()));
            // It falls silent and is heard again meanwhile: that is no reason to try harder.
            lane.peer_is_heard(&policy);
        }
        lane.peer_is_back(&policy);
        assert_eq!(lasts(&mut lane), 4000);
        assert!(lane.attempt_failed(lane.generation()));
        assert_eq!(lasts(&mut lane), 8000);
        assert!(lane.connected(lane.generation()));
        lane.failed(ms(0), lane.generation(), DirtyReason::PeerGone);
        assert_eq!(lasts(&mut lane), 4000);
    }

    #[test]
    fn what_an_older_connection_brings_is_no_news() {
        let (mut lane, policy) = (active(), plain());
        lane.failed(ms(0), 1, DirtyReason::WaitTimeout);
        assert!(matches!(lane.want(ms(0), &policy), Want::Begin { generation: 2, .. }));
        assert!(!lane.failed(ms(1), 1, DirtyReason::PeerGone));
        assert!(!lane.connected(1));
        assert!(!lane.attempt_failed(1));
        assert!(lane.connected(2));
        assert!(!lane.failed(ms(2), 1, DirtyReason::PeerGone));
        assert_eq!(lane.state(), LaneState::Active);
    }

    #[test]
    fn a_refused_key_is_refreshed_once() {
        let (mut lane, policy) = (active(), RebuildPolicy { cooldown: Duration::ZERO, ..plain() });
        let refused = DirtyReason::Completion(WcStatus::RemAccess);
        assert!(lane.failed(ms(0), 1, refused));
        assert!(matches!(lane.want(ms(0), &policy), Want::Begin { generation: 2, .. }));
        assert!(lane.connected(2));
        assert!(lane.failed(ms(1), 2, refused));
        assert_eq!(lane.state(), LaneState::Dead);
    }

    #[test]
    fn off_means_off() {
        let mut lane = active();
        lane.failed(ms(0), 1, DirtyReason::PeerGone);
        let policy = RebuildPolicy { enabled: false, ..plain() };
        assert_eq!(lane.want(ms(5000), &policy), Want::Disabled);
        assert!(!lane.has_hope(&policy));
        assert_eq!(lane.state(), LaneState::Dirty);
    }
}
