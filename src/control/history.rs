//! What happened in a deployment lately, for those who look later: what the control plane saw, and what members said.

#![forbid(unsafe_code)]

use super::limits::{SAID_MAX, TOLD_MAX};
use super::overview::Happened;
use super::types::Peer;
use crate::observe::recent::Recent;
use crate::time::Tick;
use std::collections::VecDeque;

/// What the control plane saw itself.
#[derive(Debug)]
struct Told {
    number: u64,
    at: Tick,
    peer: Peer,
    what: &'static str,
}

/// What a member said had happened in its process.
#[derive(Debug)]
struct Said {
    number: u64,
    at: Tick,
    peer: Peer,
    /// Several members of one process say the same, and each says it more than once: it is known by these.
    process: (String, u32, u64),
    text: String,
}

/// The latest of both; neither pushes the other out.
#[derive(Debug, Default)]
pub(super) struct History {
    last: u64,
    told: VecDeque<Told>,
    said: VecDeque<Said>,
}

impl History {
    pub(super) fn note(&mut self, at: Tick, peer: Peer, what: &'static str) {
        self.last += 1;
        self.told.push_back(Told { number: self.last, at, peer, what });
        if self.told.len() > TOLD_MAX {
            self.told.pop_front();
        }
    }

    /// Takes what is new of a member's events.
    pub(super) fn hear(&mut self, now: Tick, peer: Peer, host: &str, pid: u32, events: Vec<Recent>) {
        for event in events {
            let process = (host.to_owned(), pid, event.number);
            if self.said.iter().any(|said| said.process == process) {
                continue;
            }
            self.last += 1;
            let at = Tick(now.0.saturating_sub(event.age_ms.saturating_mul(1_000_000)));
            self.said.push_back(Said { number: self.last, at, peer, process, text: event.text });
            if self.said.len() > SAID_MAX {
                self.said.pop_front();
            }
        }
    }

    /// All of it, in the order in which it happened.
    pub(super) fn all(&self, now: Tick) -> Vec<Happened> {
        let age_ms = |at: Tick| now.since_ns(at) / 1_000_000;
        let told = self.told.iter().map(|told| Happened {
            number: told.number,
            age_ms: age_ms(told.at),
            peer: told.peer,
            what: told.what.to_owned(),
            is_said: false,
        });
        let said = self.said.iter().map(|said| Happened {
            number: said.number,
            age_ms: age_ms(said.at),
            peer: said.peer,
            what: said.text.clone(),
            is_said: true,
        });
        let mut all: Vec<Happened> = told.chain(said).collect();
        all.sort_by_key(|event| (core::cmp::Reverse(event.age_ms), event.number));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{ClientId, ShardId};

    const SHARD: Peer = Peer::Server(ShardId(0));
    const CLIENT: Peer = Peer::Client(ClientId(1));

    fn event(number: u64, age_ms: u64, text: &str) -> Recent {
        Recent { number, age_ms, text: text.to_owned() }
    }

    fn ms(ms: u64) -> Tick {
        Tick(ms * 1_000_000)
    }

    #[test]
    fn what_is_said_twice_is_kept_once_and_stands_where_it_happened() {
        let mut history = History::default();
        history.note(ms(10), SHARD, "joined");
        history.note(ms(90), SHARD, "died");
        let lost = || vec![event(7, 50, "warn lane_dirty"), event(8, 20, "info lane_recovered")];
        history.hear(ms(100), CLIENT, "h", 5, lost());
        history.hear(ms(100), SHARD, "h", 5, lost());
        history.hear(ms(200), CLIENT, "h", 5, vec![event(8, 120, "info lane_recovered")]);
        // Another process with the same numbers.
        history.hear(ms(200), CLIENT, "h", 6, vec![event(7, 0, "warn lane_dirty")]);
        let all = history.all(ms(200));
        let words: Vec<_> = all.iter().map(|e| (e.what.as_str(), e.age_ms, e.is_said)).collect();
        assert_eq!(
            words,
            [
                ("joined", 190, false),
                ("warn lane_dirty", 150, true),
                ("info lane_recovered", 120, true),
                ("died", 110, false),
                ("warn lane_dirty", 0, true)
            ]
        );
        assert!(all.iter().all(|event| event.number > 0));
    }

    #[test]
    fn members_that_say_much_do_not_push_out_what_the_control_plane_saw() {
        let mut history = History::default();
        history.note(ms(0), SHARD, "joined");
        for number in 0..2 * SAID_MAX as u64 {
            history.hear(ms(1), CLIENT, "h", 5, vec![event(number, 0, "x")]);
        }
        let all = history.all(ms(1));
        assert_eq!((all.len(), all[0].what.as_str()), (SAID_MAX + 1, "joined"));
    }
}
