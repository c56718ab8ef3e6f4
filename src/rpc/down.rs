//! What to say when no lane to a shard is left.

use crate::error::{Error, Outcome, Status};

/// How much a status of a lane says about why the shard cannot be reached.
fn weight(status: Status) -> u8 {
    match status {
        // The peer itself: whatever else happened, it is gone.
        Status::ShardUnreachable => 6,
        Status::Draining => 5,
        // What the device or the clock saw.
        Status::CompletionError => 4,
        Status::CompletionTimeout => 3,
        Status::WaitTimeout => 2,
        // What follows from this side.
        Status::PostFailed => 1,
        _ => 0,
    }
}

/// One error for all lanes of a shard: the most telling one's, with the number of lanes for each reason.
pub(super) fn all_down(shard: u32, lanes: impl Iterator<Item = Box<Error>>) -> Box<Error> {
    let lanes: Vec<_> = lanes.collect();
    let count = lanes.len();
    let mut reasons: Vec<(Status, usize)> = Vec::new();
    for error in &lanes {
        match reasons.iter_mut().find(|(status, _)| *status == error.status) {
            Some((_, lanes)) => *lanes += 1,
            None => reasons.push((error.status, 1)),
        }
    }
    reasons.sort_by_key(|(status, _)| core::cmp::Reverse(weight(*status)));
    // Of several with the same weight the last one counts: `max_by_key` keeps it.
    let mut error = lanes
        .into_iter()
        .max_by_key(|error| weight(error.status))
        .unwrap_or_else(|| Error::new(Status::LaneDown, format!("there is no lane to shard {shard}")).at_shard(shard));
    if count > 1 {
        let each: Vec<String> = reasons.iter().map(|(status, lanes)| format!("{lanes} {status}")).collect();
        error.message = format!("all {count} lanes to shard {shard} are down ({}): {}", each.join(", "), error.message);
    }
    error.outcome = Outcome::NotExecuted;
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_telling_reason_is_reported_with_counts() {
        let lane = |number: u32, status| Error::new(status, format!("lane {number}")).at_shard(3).at_lane(number, 1);
        let error = all_down(
            3,
            [
                lane(0, Status::PostFailed),
                lane(1, Status::WaitTimeout),
                lane(2, Status::ShardUnreachable),
                lane(3, Status::WaitTimeout),
            ]
            .into_iter(),
        );
        assert_eq!(
            (error.status, error.lane, error.outcome),
            (Status::ShardUnreachable, Some(2), Outcome::NotExecuted)
        );
        let text = "all 4 lanes to shard 3 are down (1 SHARD_UNREACHABLE, 2 WAIT_TIMEOUT, 1 POST_FAILED): lane 2";
        assert_eq!(error.message, text);
    }

    #[test]
    fn one_lane_and_none_say_so() {
        let one = all_down(3, core::iter::once(Error::new(Status::WaitTimeout, "lane 0")));
        assert_eq!((one.status, one.message.as_str()), (Status::WaitTimeout, "lane 0"));
        let none = all_down(3, core::iter::empty());
        assert_eq!((none.status, none.shard), (Status::LaneDown, Some(3)));
    }
}
