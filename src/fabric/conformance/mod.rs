//! The contract's tests, written once, generic over the provider.
//!
//! A provider runs them with [`conformance_suite`](crate::fabric::conformance::conformance_suite), given a function that
//! opens it. Every test opens two instances, as two processes would.

// Each function is a test; its name says what.
#![allow(missing_docs, missing_debug_implementations, clippy::cast_possible_truncation, clippy::cast_sign_loss)]

pub mod data;
pub mod errors;
pub mod order;
pub mod pair;
pub mod sleep;
pub mod states;

/// Makes one `#[test]` of each of the suite's functions. `$open`: a function without arguments that opens the provider.
macro_rules! conformance_suite {
    ($open:expr) => {
        $crate::fabric::conformance::conformance_suite!(@each $open,
            states: a_new_queue_pair_is_in_reset_and_takes_no_work;
            states: both_ends_connect_in_any_order;
            states: both_ends_connect_at_the_same_time;
            states: many_pairs_connect_at_the_same_time;
            states: connect_needs_reset;
            states: a_refused_modify_changes_nothing;
            states: err_is_reached_from_any_state_and_left_by_reset_only;
            states: a_reset_queue_pair_connects_again_under_a_fresh_address;
            states: a_stale_address_is_refused;
            states: garbage_is_no_address;
            states: a_peer_without_a_process_is_refused;
            data: writes_and_reads_move_bytes;
            data: pieces_are_gathered_and_scattered;
            data: atomics_return_the_old_value;
            data: atomics_of_both_sides_lose_nothing;
            data: immediates_complete_receives_in_order;
            data: an_immediate_without_a_receive_fails;
            data: only_signaled_work_completes;
            data: a_full_send_queue_takes_nothing;
            data: a_full_receive_queue_takes_nothing;
            data: malformed_work_is_refused_and_nothing_is_posted;
            data: a_region_exposed_later_can_be_used;
            data: a_region_that_was_taken_back_is_gone_and_makes_room;
            data: a_window_is_the_peers_memory;
            data: a_region_has_the_address_that_was_chosen_for_it;
            order: the_last_word_of_a_write_comes_last;
            order: an_earlier_write_is_visible_before_a_later_one;
            order: an_immediate_follows_its_data;
            errors: bounds_are_exact;
            errors: every_violation_ends_both_sides;
            errors: rights_are_those_of_the_region;
            errors: everything_behind_an_error_is_flushed_once;
            errors: posted_receives_are_flushed_once;
            errors: reset_forgets_completions;
            errors: a_closed_peer_is_noticed;
            errors: one_broken_lane_leaves_the_others_alone;
            errors: work_races_with_err_and_completes_once;
            sleep: a_ring_is_never_lost;
            sleep: a_notice_wakes_and_silence_times_out;
        );
    };
    (@each $open:expr, $($part:ident: $name:ident;)*) => {
        $(#[test]
        fn $name() {
            $crate::fabric::conformance::$part::$name(&$open);
        })*
    };
}
pub(crate) use conformance_suite;
