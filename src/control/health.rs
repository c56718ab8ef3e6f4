//! Who has been heard of lately: the health of shards, from their heartbeats.

#![forbid(unsafe_code)]

use crate::ids::{Incarnation, ShardId};
use crate::time::Tick;
use core::time::Duration;
use std::collections::BTreeMap;

/// What the control plane thinks of a shard.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// It was heard of lately.
    Serving = 1,
    /// Not for a while.
    Suspect = 2,
    /// Not for so long that it counts as dead. It is taken back when it is heard of again.
    Dead = 3,
}

impl Health {
    /// The name in events.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Health::Serving => "serving",
            Health::Suspect => "suspect",
            Health::Dead => "dead",
        }
    }

    /// The health with this number.
    #[must_use]
    pub fn from_code(code: u32) -> Option<Health> {
        [Health::Serving, Health::Suspect, Health::Dead].into_iter().find(|health| *health as u32 == code)
    }
}

/// After how long a silence a shard is suspect, and dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// Suspect from here on.
    pub stale: Duration,
    /// Dead from here on.
    pub dead: Duration,
}

impl Default for Thresholds {
    fn default() -> Thresholds {
        Thresholds { stale: Duration::from_millis(3000), dead: Duration::from_millis(9000) }
    }
}

/// What is known of one shard's health.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthReport {
    /// Whether anything is: false is no verdict.
    pub known: bool,
    /// What is thought of it.
    pub health: Health,
    /// The process that was heard of.
    pub incarnation: Incarnation,
    /// How long ago.
    pub idle_ms: u64,
}

impl HealthReport {
    /// Nothing is known.
    pub const UNKNOWN: HealthReport =
        HealthReport { known: false, health: Health::Suspect, incarnation: Incarnation(0), idle_ms: 0 };
}

#[derive(Clone, Copy, Debug)]
struct Heard {
    incarnation: Incarnation,
    last: Tick,
    health: Health,
}

/// A change of one shard's health.
pub(super) type Change = (ShardId, Incarnation, Health);

/// The heartbeats of all shards.
#[derive(Debug, Default)]
pub(super) struct Beats {
    thresholds: Thresholds,
    by_shard: BTreeMap<ShardId, Heard>,
    /// When the next look was due as of the last one.
    planned: Option<Tick>,
}

impl Beats {
    pub(super) fn set_thresholds(&mut self, thresholds: Thresholds) {
        self.thresholds = thresholds;
    }

    /// A shard reports that it lives.
    pub(super) fn beat(&mut self, now: Tick, shard: ShardId, incarnation: Incarnation) -> Option<Change> {
        let before = self.by_shard.insert(shard, Heard { incarnation, last: now, health: Health::Serving });
        let same = before.is_some_and(|b| b.incarnation == incarnation && b.health == Health::Serving);
        self.planned = self.next_deadline();
        (!same).then_some((shard, incarnation, Health::Serving))
    }

    /// It is gone.
    pub(super) fn forget(&mut self, shard: ShardId) {
        self.by_shard.remove(&shard);
        self.planned = self.next_deadline();
    }

    /// Whose health has changed by now. A look that comes late says that we were held up ourselves: that time is nobody's
    /// silence.
    pub(super) fn tick(&mut self, now: Tick) -> Vec<Change> {
        let late_ns = self.planned.map_or(0, |planned| now.since_ns(planned));
        let slack = self.thresholds.dead.saturating_sub(self.thresholds.stale) / 2;
        if late_ns > u64::try_from(slack.as_nanos()).unwrap_or(u64::MAX) {
            self.by_shard.values_mut().for_each(|heard| heard.last = Tick(heard.last.0.saturating_add(late_ns)));
        }
        let thresholds = self.thresholds;
        let mut changes = Vec::new();
        for (shard, heard) in &mut self.by_shard {
            let health = if heard.last.after(thresholds.dead) <= now {
                Health::Dead
            } else if heard.last.after(thresholds.stale) <= now {
                Health::Suspect
            } else {
                Health::Serving
            };
            if health != heard.health {
                heard.health = health;
                changes.push((*shard, heard.incarnation, health));
            }
        }
        self.planned = self.next_deadline();
        changes
    }

    /// When the next change is due, unless a beat comes first.
    pub(super) fn next_deadline(&self) -> Option<Tick> {
        self.by_shard
            .values()
            .filter_map(|heard| match heard.health {
                Health::Serving => Some(heard.last.after(self.thresholds.stale)),
                Health::Suspect => Some(heard.last.after(self.thresholds.dead)),
                Health::Dead => None,
            })
            .min()
    }

    pub(super) fn report(&self, now: Tick, shard: ShardId) -> HealthReport {
        self.by_shard.get(&shard).map_or(HealthReport::UNKNOWN, |heard| HealthReport {
            known: true,
            health: heard.health,
            incarnation: heard.incarnation,
            idle_ms: now.since_ns(heard.last) / 1_000_000,
        })
    }

    /// Everybody's health, for a member that has just joined.
    pub(super) fn all(&self) -> impl Iterator<Item = Change> {
        self.by_shard.iter().map(|(shard, heard)| (*shard, heard.incarnation, heard.health))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARD: ShardId = ShardId(1);
    const LIFE: Incarnation = Incarnation(7);

    fn ms(ms: u64) -> Tick {
        Tick(0).after(Duration::from_millis(ms))
    }

    #[test]
    fn silence_makes_suspect_then_dead_and_a_beat_makes_well() {
        let mut beats = Beats::default();
        assert!(!beats.report(ms(0), SHARD).known);
        assert_eq!(beats.beat(ms(0), SHARD, LIFE), Some((SHARD, LIFE, Health::Serving)));
        assert_eq!(beats.beat(ms(1000), SHARD, LIFE), None);
        assert_eq!(beats.next_deadline(), Some(ms(4000)));
        assert!(beats.tick(ms(3999)).is_empty());
        assert_eq!(beats.tick(ms(4000)), [(SHARD, LIFE, Health::Suspect)]);
        assert_eq!(beats.tick(ms(10000)), [(SHARD, LIFE, Health::Dead)]);
        assert_eq!(beats.report(ms(10000), SHARD).idle_ms, 9000);
        assert_eq!(beats.next_deadline(), None);
        assert_eq!(beats.beat(ms(11000), SHARD, LIFE), Some((SHARD, LIFE, Health::Serving)));
        beats.forget(SHARD);
        assert_eq!(beats.report(ms(11000), SHARD), HealthReport::UNKNOWN);
    }

    #[test]
    fn a_control_plane_that_was_held_up_itself_blames_nobody() {
        let mut beats = Beats::default();
        beats.beat(ms(0), SHARD, LIFE);
        // Due at 3000, and we look at 60000 only: we were stopped.
        assert_eq!(beats.tick(ms(60_000)), [(SHARD, LIFE, Health::Suspect)]);
        assert_eq!(beats.tick(ms(65_999)), []);
        assert_eq!(beats.tick(ms(66_000)), [(SHARD, LIFE, Health::Dead)]);
    }
}
