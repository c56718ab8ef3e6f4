//! Profile lines: `component=<name> key=value ...`, one per component and interval, about what happened since the last.
//!
//! What is counted are totals; what is printed are mostly averages. Component and field names are those that operators of
//! such servers already parse. Times are those of the requests that are timed, times the number that one of them stands
//! for; beside each lies how many requests that makes.

use super::{record, subscriber};

/// How one field of a line is made from counters, which are named by their place in the component's list.
#[derive(Clone, Copy, Debug)]
pub enum Shown {
    /// The counter itself.
    Total(&'static str, usize),
    /// The first counter divided by the second; 0 when nothing was counted.
    Average(&'static str, usize, usize),
    /// The first counter as hundredths of the second, with two decimals.
    Percent(&'static str, usize, usize),
    /// What the counter is at the moment: no total.
    Now(&'static str, usize),
}

/// A component: its counters and its line.
#[derive(Debug)]
pub struct Component {
    /// The component's name.
    pub name: &'static str,
    /// Names of its counters.
    pub counters: &'static [&'static str],
    /// The line's fields.
    pub fields: &'static [Shown],
}

macro_rules! component {
    (
        $(#[$doc:meta])* $module:ident, $name:literal,
        counters { $($counter:ident,)+ }
        line { $($field:ident = $how:ident($first:ident $(/ $second:ident)?),)+ }
    ) => {
        $(#[$doc])*
        pub mod $module {
            use super::{Component, Shown};

            #[allow(non_camel_case_types)] // spelled as they are printed
            enum Place { $($counter,)+ }

            // One constant per counter.
            $(
                #[doc = concat!("Place of the counter `", stringify!($counter), "`.")]
                #[allow(non_upper_case_globals)] // spelled as they are printed
                pub const $counter: usize = Place::$counter as usize;
            )+

            /// The component.
            pub const COMPONENT: Component = Component {
                name: $name,
                counters: &[$(stringify!($counter)),+],
                fields: &[$(Shown::$how(stringify!($field), $first $(, $second)?)),+],
            };
        }
    };
}

component! {
    /// A client's requests.
    client, "rdma_rc_client_profile",
    counters {
        submit_count, wait_count, revoke_count, acquire_qp_count, acquire_qp_failures, submit_request_ns,
        wait_status_ns, copy_response_ns, copied_bytes, revoke_resource_ns, timed_requests, timed_revokes,
        pending_rpc_peak, pending_rpc_sum, pending_rpc_looks, pending_rpc_last,
    }
    line {
        submit_count = Total(submit_count),
        wait_count = Total(wait_count),
        revoke_count = Total(revoke_count),
        acquire_qp_count = Total(acquire_qp_count),
        acquire_qp_failures = Total(acquire_qp_failures),
        submit_avg_ns = Average(submit_request_ns / timed_requests),
        wait_status_avg_ns = Average(wait_status_ns / timed_requests),
        copy_response_avg_ns = Average(copy_response_ns / timed_requests),
        copied_bytes = Total(copied_bytes),
        revoke_avg_ns = Average(revoke_resource_ns / timed_revokes),
        pending_rpc_peak = Now(pending_rpc_peak),
        pending_rpc_avg = Average(pending_rpc_sum / pending_rpc_looks),
        pending_rpc_last = Now(pending_rpc_last),
    }
}

component! {
    /// A server's poll threads and handlers.
    server, "rdma_rc_server_profile",
    counters {
        threads, scan_rounds, scanned_slots, ready_slots, not_ready_slots, zero_seq_ready, duplicate_seq_ready,
        inflight_seq_ready, empty_scan_rounds, ready_rounds, max_ready_per_round, handled_get, handled_put,
        handled_update, handled_init, invalid_descriptor, wrong_shard, handle_get_ns, timed_gets, get_batch_get_ns,
        get_index_lookup_ns, get_zero_fill_ns, get_row_copy_ns, get_rows, get_value_bytes, get_missing_rows,
        get_direct_sg, get_direct_sg_fallback, get_direct_sg_ns, timed_direct, get_direct_sg_wr, handle_put_ns,
        timed_puts, handle_update_ns, timed_updates, handle_init_ns, timed_inits, complete_response_ns, timed_answers,
        poll_loop_ns, poller_active, poller_total_get, poller_min_get, poller_min_get_thread, poller_max_get,
        poller_max_get_thread,
    }
    line {
        threads = Now(threads),
        scan_rounds = Total(scan_rounds),
        scanned_slots = Total(scanned_slots),
        ready_slots = Total(ready_slots),
        not_ready_slots = Total(not_ready_slots),
        zero_seq_ready = Total(zero_seq_ready),
        duplicate_seq_ready = Total(duplicate_seq_ready),
        inflight_seq_ready = Total(inflight_seq_ready),
        empty_scan_rounds = Total(empty_scan_rounds),
        scan_hit_pct = Percent(ready_slots / scanned_slots),
        ready_round_pct = Percent(ready_rounds / scan_rounds),
        avg_ready_per_round = Average(ready_slots / ready_rounds),
        max_ready_per_round = Now(max_ready_per_round),
        handled_get = Total(handled_get),
        handled_put = Total(handled_put),
        handled_update = Total(handled_update),
        handled_init = Total(handled_init),
        invalid_descriptor = Total(invalid_descriptor),
        wrong_shard = Total(wrong_shard),
        handle_get_avg_ns = Average(handle_get_ns / timed_gets),
        get_batch_get_avg_ns = Average(get_batch_get_ns / timed_gets),
        get_index_lookup_avg_ns = Average(get_index_lookup_ns / timed_gets),
        get_zero_fill_avg_ns = Average(get_zero_fill_ns / timed_gets),
        get_row_copy_avg_ns = Average(get_row_copy_ns / timed_gets),
        get_rows = Total(get_rows),
        get_value_bytes = Total(get_value_bytes),
        get_missing_rows = Total(get_missing_rows),
        get_direct_sg = Total(get_direct_sg),
        get_direct_sg_fallback = Total(get_direct_sg_fallback),
        get_direct_sg_avg_ns = Average(get_direct_sg_ns / timed_direct),
        get_direct_sg_wr = Total(get_direct_sg_wr),
        handle_put_avg_ns = Average(handle_put_ns / timed_puts),
        handle_update_avg_ns = Average(handle_update_ns / timed_updates),
        handle_init_avg_ns = Average(handle_init_ns / timed_inits),
        complete_response_avg_ns = Average(complete_response_ns / timed_answers),
        poll_loop_avg_ns = Average(poll_loop_ns / scan_rounds),
        poller_active = Now(poller_active),
        poller_total_get = Total(poller_total_get),
        poller_min_get = Now(poller_min_get),
        poller_min_get_thread = Now(poller_min_get_thread),
        poller_max_get = Now(poller_max_get),
        poller_max_get_thread = Now(poller_max_get_thread),
    }
}

component! {
    /// One poll thread of a server.
    poller, "rdma_rc_server_poller_profile",
    counters { thread, scan_rounds, empty_scan_rounds, ready_slots, sleeps, lanes, handled_get, handled_put, handled_update, }
    line {
        thread = Now(thread),
        scan_rounds = Total(scan_rounds),
        empty_scan_rounds = Total(empty_scan_rounds),
        ready_slots = Total(ready_slots),
        sleeps = Total(sleeps),
        lanes = Now(lanes),
        handled_get = Total(handled_get),
        handled_put = Total(handled_put),
        handled_update = Total(handled_update),
    }
}

component! {
    /// Writes and completions of one end.
    transport, "rdma_rc_transport_profile",
    counters {
        submit_count, submit_descriptor_writes, submit_commit_writes, submit_request_ns, timed_submits,
        drain_submit_count, drain_pending_submit_ns, complete_count, response_payload_writes,
        response_payload_sg_writes, response_payload_sg_wrs, response_status_writes, response_payload_bytes,
        complete_response_ns, timed_completes, drain_response_count, drain_pending_response_ns,
    }
    line {
        submit_count = Total(submit_count),
        submit_descriptor_writes = Total(submit_descriptor_writes),
        submit_commit_writes = Total(submit_commit_writes),
        submit_avg_ns = Average(submit_request_ns / timed_submits),
        drain_submit_count = Total(drain_submit_count),
        drain_submit_avg_ns = Average(drain_pending_submit_ns / drain_submit_count),
        complete_count = Total(complete_count),
        response_payload_writes = Total(response_payload_writes),
        response_payload_sg_writes = Total(response_payload_sg_writes),
        response_payload_sg_wrs = Total(response_payload_sg_wrs),
        response_status_writes = Total(response_status_writes),
        response_payload_bytes = Total(response_payload_bytes),
        complete_avg_ns = Average(complete_response_ns / timed_completes),
        drain_response_count = Total(drain_response_count),
        drain_response_avg_ns = Average(drain_pending_response_ns / drain_response_count),
    }
}

impl Component {
    /// A line of these totals, or of what was counted since others. `head` are fields that come first: shard, client_id,
    /// role.
    #[must_use]
    pub fn line(&self, now: &[u64], before: &[u64], head: &[(&str, String)]) -> String {
        let mut line = format!("component={}", self.name);
        for (key, value) in head {
            record::push(&mut line, key, value);
        }
        for field in self.fields {
            record::push(&mut line, field.name(), &field.text(now, before));
        }
        line
    }

    /// A counter's total by its name, or a printed field's value since the start; of a share, in hundredths of a percent.
    #[must_use]
    pub fn value(&self, now: &[u64], name: &str) -> Option<u64> {
        if let Some(place) = self.counters.iter().position(|counter| *counter == name) {
            return now.get(place).copied();
        }
        let field = self.fields.iter().find(|field| field.name() == name)?;
        field.text(now, &[]).replace('.', "").parse().ok()
    }
}

impl Shown {
    fn name(&self) -> &'static str {
        match *self {
            Shown::Total(name, _) | Shown::Average(name, ..) | Shown::Percent(name, ..) | Shown::Now(name, _) => name,
        }
    }

    fn text(&self, now: &[u64], before: &[u64]) -> String {
        let at = |all: &[u64], place: usize| all.get(place).copied().unwrap_or(0);
        let since = |place: usize| at(now, place).wrapping_sub(at(before, place));
        match *self {
            Shown::Total(_, place) => since(place).to_string(),
            Shown::Average(_, total, count) => since(total).checked_div(since(count)).unwrap_or(0).to_string(),
            Shown::Percent(_, part, whole) => percent(since(part), since(whole)),
            Shown::Now(_, place) => at(now, place).to_string(),
        }
    }
}

/// One component of this process, and what its totals were when the last line was made.
#[derive(Debug)]
pub struct Profile {
    component: &'static Component,
    last: Vec<u64>,
}

impl Profile {
    /// Starts at zero.
    #[must_use]
    pub fn new(component: &'static Component) -> Profile {
        Profile { component, last: Vec::new() }
    }

    /// The line about what was counted since the last call.
    pub fn line(&mut self, now: Vec<u64>, head: &[(&str, String)]) -> String {
        let line = self.component.line(&now, &self.last, head);
        self.last = now;
        line
    }
}

fn percent(part: u64, whole: u64) -> String {
    let hundredths = (u128::from(part) * 10_000).checked_div(u128::from(whole)).unwrap_or(0);
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

/// Writes a profile line to every sink that takes lines; to standard output when there is none, for it was asked for by
/// setting the interval.
pub fn write(line: &str) {
    if !subscriber::deliver_line(line) {
        use std::io::Write;
        let _ = writeln!(std::io::stdout().lock(), "{line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_of_the_time_since_the_last() {
        let mut totals = vec![0; client::COMPONENT.counters.len()];
        let mut profile = Profile::new(&client::COMPONENT);
        totals[client::submit_count] = 4;
        totals[client::timed_requests] = 4;
        totals[client::submit_request_ns] = 400;
        totals[client::pending_rpc_peak] = 5;
        let line = profile.line(totals.clone(), &[("shard", "1".to_owned())]);
        assert!(line.starts_with("component=rdma_rc_client_profile shard=1 submit_count=4 wait_count=0 "), "{line}");
        assert!(line.contains(" submit_avg_ns=100 ") && line.contains(" pending_rpc_peak=5 "), "{line}");
        totals[client::submit_count] += 1;
        assert!(profile.line(totals.clone(), &[]).contains(" submit_count=1 "));
        let find = |name| client::COMPONENT.value(&totals, name);
        assert_eq!(
            (find("submit_count"), find("submit_avg_ns"), find("submit_request_ns")),
            (Some(5), Some(100), Some(400))
        );
        assert_eq!(find("nothing"), None);
    }

    #[test]
    fn shares_have_two_decimals() {
        assert_eq!((percent(1, 3), percent(0, 0), percent(7, 7)), ("33.33".into(), "0.00".into(), "100.00".into()));
    }

    #[test]
    fn every_field_is_made_of_counters_that_exist() {
        for component in [client::COMPONENT, server::COMPONENT, poller::COMPONENT, transport::COMPONENT] {
            for field in component.fields {
                let (Shown::Total(_, a) | Shown::Now(_, a)) = *field else { continue };
                assert!(a < component.counters.len());
            }
        }
    }
}
