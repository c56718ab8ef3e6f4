//! Equal events as one line: when a shard dies, each of its lanes says so.

use super::table::ago;
use reclane::control::overview::Happened;

/// Fields that tell one lane from another, and nothing of what happened to it.
const OF_ONE_LANE: [&str; 3] = ["lane=", "generation=", "qp="];
/// Equal events that are further apart are two stories.
const CLOSE_MS: u64 = 2000;

/// The lines of events that are given oldest first; events that are equal but for their lane share one with their number.
pub fn lines(events: &[Happened]) -> Vec<String> {
    let mut groups: Vec<Vec<&Happened>> = Vec::new();
    for event in events {
        let fits = |group: &&mut Vec<&Happened>| group.last().is_some_and(|last| is_equal(last, event));
        match groups.iter_mut().rev().find(fits) {
            Some(group) => group.push(event),
            None => groups.push(vec![event]),
        }
    }
    groups.iter().map(|group| line(group)).collect()
}

fn is_equal(one: &Happened, other: &Happened) -> bool {
    one.peer == other.peer
        && one.is_said == other.is_said
        && one.age_ms.abs_diff(other.age_ms) <= CLOSE_MS
        && common(&one.what).eq(common(&other.what))
}

/// The words of an event that say what happened.
fn common(what: &str) -> impl Iterator<Item = &str> {
    what.split(' ').filter(|word| !OF_ONE_LANE.iter().any(|field| word.starts_with(field)))
}

fn line(group: &[&Happened]) -> String {
    let (Some(first), Some(last)) = (group.first(), group.last()) else { return String::new() };
    let when = ago(last.age_ms);
    if group.len() == 1 {
        return format!("{when:>10} ago  {} {}", first.peer, first.what);
    }
    let mut lanes: Vec<u32> = group.iter().filter_map(|event| lane(&event.what)).collect();
    lanes.sort_unstable();
    lanes.dedup();
    let lanes = if lanes.is_empty() { String::new() } else { format!(" lanes={}", ranges(&lanes)) };
    let what = common(&first.what).collect::<Vec<_>>().join(" ");
    format!("{when:>10} ago  {} {what}{lanes} ({} times)", first.peer, group.len())
}

fn lane(what: &str) -> Option<u32> {
    what.split(' ').find_map(|word| word.strip_prefix("lane="))?.parse().ok()
}

/// Sorted numbers as `0-3,7`.
fn ranges(numbers: &[u32]) -> String {
    let run = |run: &[u32]| match run {
        [one] => one.to_string(),
        [first, .., last] => format!("{first}-{last}"),
        [] => String::new(),
    };
    numbers.chunk_by(|a, b| a + 1 == *b).map(run).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use reclane::control::Peer;
    use reclane::ids::{ClientId, ShardId};

    fn said(client: u32, age_ms: u64, what: String) -> Happened {
        Happened { number: 0, age_ms, peer: Peer::Client(ClientId(client)), what, is_said: true }
    }

    fn dirty(client: u32, age_ms: u64, shard: u32, lane: u32) -> Happened {
        let what = format!("warn lane_dirty shard={shard} lane={lane} generation=1 reason=peer_gone qp={}", lane + 7);
        said(client, age_ms, what)
    }

    #[test]
    fn all_lanes_of_one_dead_shard_are_one_line() {
        let mut events: Vec<Happened> = (0..16).map(|lane| dirty(0, 1500 - u64::from(lane), 1, lane)).collect();
        // Other events between them change nothing.
        events.insert(8, said(3, 1490, "info client_ready".to_owned()));
        let lines = lines(&events);
        assert_eq!(lines.len(), 2, "{lines:#?}");
        assert_eq!(lines[0], "     1.4 s ago  client 0 warn lane_dirty shard=1 reason=peer_gone lanes=0-15 (16 times)");
        assert_eq!(lines[1], "     1.4 s ago  client 3 info client_ready");
    }

    #[test]
    fn other_shards_members_causes_and_times_stay_apart() {
        let mut other_cause = dirty(0, 99, 1, 3);
        other_cause.what = other_cause.what.replace("peer_gone", "wait_timeout");
        let unlike = [dirty(0, 9000, 1, 0), dirty(0, 100, 1, 0), dirty(1, 100, 1, 1), dirty(0, 99, 2, 2), other_cause];
        let apart = lines(&unlike);
        assert_eq!(apart.len(), unlike.len(), "{apart:#?}");
        assert!(apart[1].ends_with("lane=0 generation=1 reason=peer_gone qp=7"), "{apart:#?}");
        let server = Happened { peer: Peer::Server(ShardId(1)), what: "died".to_owned(), ..dirty(0, 5, 1, 0) };
        assert!(lines(&[server.clone(), server])[0].ends_with("shard 1 died (2 times)"));
    }

    #[test]
    fn lanes_that_lie_side_by_side_are_a_range() {
        assert_eq!(ranges(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
        assert_eq!(ranges(&[4]), "4");
    }
}
