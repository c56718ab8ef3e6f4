//! The last events of this process, kept while it is a member of a deployment, for people who look at that.

use super::record::EventRecord;
use super::sink::{self, Guard};
use crate::sync::{Arc, Mutex, Weak, lock};
use crate::time::unix_us;
use std::collections::VecDeque;

/// How many are kept.
pub const RECENT_MAX: usize = 64;
/// Bytes of one in words. What is longer is cut.
pub const RECENT_TEXT_BYTES_MAX: usize = 240;

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recent {
    /// Grows from event to event, and from one process of a number to the next: the first one's is the time.
    pub number: u64,
    /// How long ago.
    pub age_ms: u64,
    /// Level, name and fields: `warn lane_dirty shard=0 lane=3`.
    pub text: String,
}

#[derive(Debug)]
struct Ring {
    last: u64,
    kept: VecDeque<(u64, u64, String)>,
    /// Events of each level so far: errors, warnings, others.
    counts: [u64; 3],
}

static RING: Mutex<Ring> = Mutex::new(Ring { last: 0, kept: VecDeque::new(), counts: [0; 3] });
/// The sink that fills it, while anybody holds it.
static HELD: Mutex<Weak<Guard>> = Mutex::new(Weak::new());

/// From now on, and as long as one holder is left, events of level info and above are kept.
#[must_use]
pub fn keep() -> Arc<Guard> {
    let mut held = lock(&HELD);
    if let Some(guard) = held.upgrade() {
        return guard;
    }
    let guard = Arc::new(sink::recent());
    *held = Arc::downgrade(&guard);
    guard
}

/// The events that are kept, oldest first.
#[must_use]
pub fn recent() -> Vec<Recent> {
    let now = unix_us();
    let ring = lock(&RING);
    let one = |(number, at, text): &(u64, u64, String)| Recent {
        number: *number,
        age_ms: now.saturating_sub(*at) / 1000,
        text: text.clone(),
    };
    ring.kept.iter().map(one).collect()
}

/// Errors, warnings and other events since the process is a member.
#[must_use]
pub fn counts() -> [u64; 3] {
    lock(&RING).counts
}

pub(super) fn push(event: &EventRecord) {
    let mut text = event.words();
    if text.len() > RECENT_TEXT_BYTES_MAX {
        let end = (0..=RECENT_TEXT_BYTES_MAX - 3).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
        text.push_str("...");
    }
    let mut ring = lock(&RING);
    ring.last = if ring.last == 0 { event.time_us } else { ring.last + 1 };
    let number = ring.last;
    ring.counts[match event.level {
        tracing::Level::ERROR => 0,
        tracing::Level::WARN => 1,
        _ => 2,
    }] += 1;
    if ring.kept.len() == RECENT_MAX {
        ring.kept.pop_front();
    }
    ring.kept.push_back((number, event.time_us, text));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::{Level, events};

    #[test]
    fn events_are_kept_while_somebody_holds_them_and_only_the_last_ones() {
        let mine = |text: &str| recent().into_iter().filter(|event| event.text.contains(text)).collect::<Vec<_>>();
        let (one, two) = (keep(), keep());
        assert!(Arc::ptr_eq(&one, &two));
        crate::event!(Level::WARN, events::LANE_DIRTY, test = "recent-kept", lane = 3);
        crate::event!(Level::DEBUG, events::LANE_DIRTY, test = "recent-kept", lane = 4);
        drop(one);
        crate::event!(Level::INFO, events::LANE_RECOVERED, test = "recent-kept", why = "x".repeat(500));
        let kept = mine("recent-kept");
        assert_eq!(kept.len(), 2, "{kept:?}");
        assert_eq!(kept[0].text, "warn lane_dirty test=recent-kept lane=3");
        assert!(kept[1].text.len() == RECENT_TEXT_BYTES_MAX && kept[1].text.ends_with("..."));
        assert!(kept[0].number < kept[1].number);
        for _ in 0..RECENT_MAX {
            crate::event!(Level::INFO, events::LANE_RECOVERED, test = "recent-others");
        }
        assert!(mine("recent-kept").is_empty());
        assert!(recent().len() <= RECENT_MAX);
        drop(two);
    }
}
