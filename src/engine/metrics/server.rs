//! The numbers of a shard.

use super::{Source, Totals, event_cells, head, info_labels, is_counting, sample_mask, sample_weight, set, set_events};
use crate::control::limits::CLIENTS_MAX;
use crate::engine::server::checkpoint::Tally;
use crate::engine::server::core::Shared;
use crate::engine::server::watched::{WIDTH, Watch, store, word};
use crate::error::Result;
use crate::fabric::Fabric;
use crate::ids::Incarnation;
use crate::observe::layout::{Role, place};
use crate::observe::metrics::{Kind, name};
use crate::observe::page::{Cell, Page, Plan, Rows};
use crate::observe::profile::{poller, server as fields, transport};
use crate::options::Settings;
use crate::sync::{Arc, Ordering, lock};
use crate::time::unix_us;

#[derive(Debug)]
struct Cells {
    info: Cell,
    plane_up: Cell,
    refreshes: Cell,
    clients: Cell,
    clients_max: Cell,
    events: [Cell; 3],
    queued: Cell,
    checkpoints: Checkpoints,
}

/// Numbers of checkpoints.
#[derive(Debug)]
struct Checkpoints {
    /// begun, written, failed.
    stages: [Cell; 3],
    /// committed, aborted.
    led: [Cell; 2],
    epoch: Cell,
    state_bytes: Cell,
    written_bytes: Cell,
    held_ns: Cell,
    held_max_ns: Cell,
    writing_ns: Cell,
}

impl Checkpoints {
    fn plan(plan: &mut Plan) -> Checkpoints {
        let stage = |word: &str| format!("stage=\"{word}\"");
        let result = |word: &str| format!("result=\"{word}\"");
        let mut plain = |kind, name| plan.cell(kind, name, String::new());
        let epoch = plain(Kind::Gauge, name::SERVER_CHECKPOINT_EPOCH);
        let state_bytes = plain(Kind::Counter, name::SERVER_CHECKPOINT_STATE);
        let written_bytes = plain(Kind::Counter, name::SERVER_CHECKPOINT_WRITTEN);
        let held_ns = plain(Kind::Counter, name::SERVER_CHECKPOINT_HELD);
        let held_max_ns = plain(Kind::Peak, name::SERVER_CHECKPOINT_HELD_MAX);
        let writing_ns = plain(Kind::Counter, name::SERVER_CHECKPOINT_WRITING);
        let stages =
            ["begun", "written", "failed"].map(|word| plan.cell(Kind::Counter, name::SERVER_CHECKPOINTS, stage(word)));
        let led =
            ["committed", "aborted"].map(|word| plan.cell(Kind::Counter, name::SERVER_CHECKPOINTS_LED, result(word)));
        Checkpoints { stages, led, epoch, state_bytes, written_bytes, held_ns, held_max_ns, writing_ns }
    }

    fn refresh(&self, page: &Page, tally: &Tally) {
        let counts = tally.counts();
        let [begun, written, failed] = self.stages;
        let [committed, aborted] = self.led;
        let pairs = [
            (begun, counts.begun),
            (written, counts.written),
            (failed, counts.failed),
            (committed, counts.committed),
            (aborted, counts.aborted),
            (self.epoch, counts.epoch),
            (self.state_bytes, counts.state_bytes),
            (self.written_bytes, counts.written_bytes),
            (self.held_ns, counts.held_ns),
            (self.held_max_ns, counts.held_max_ns),
            (self.writing_ns, counts.writing_ns),
        ];
        pairs.iter().for_each(|(cell, value)| set(page, *cell, *value));
    }
}

/// A shard's page, before its threads run.
#[derive(Debug)]
pub(in crate::engine) struct ServerPage {
    page: Arc<Page>,
    cells: Cells,
    rows: Rows<WIDTH>,
    /// How its threads are watched, if they are.
    pub(in crate::engine) watch: Option<Watch>,
}

impl ServerPage {
    /// Makes the page.
    ///
    /// # Errors
    /// `OsError` naming the file.
    pub(in crate::engine) fn make(
        settings: &Settings,
        incarnation: Incarnation,
        fabric: &'static str,
        threads: usize,
    ) -> Result<ServerPage> {
        let mut plan = Plan::default();
        let none = String::new;
        let info = info_labels("server", settings.shard_id, fabric);
        let cells = Cells {
            info: plan.cell(Kind::Gauge, name::INFO, info),
            plane_up: plan.cell(Kind::Gauge, name::CONTROL_PLANE_UP, none()),
            refreshes: plan.cell(Kind::Counter, name::REFRESHES, none()),
            clients: plan.cell(Kind::Gauge, name::SERVER_CLIENTS, none()),
            clients_max: plan.cell(Kind::Gauge, name::SERVER_CLIENTS_MAX, none()),
            events: event_cells(&mut plan),
            queued: plan.cell(Kind::Gauge, name::SERVER_QUEUED, none()),
            checkpoints: Checkpoints::plan(&mut plan),
        };
        let block = plan.block(threads, WIDTH);
        let requests = [
            (word::GETS, "get"),
            (word::PUTS, "put"),
            (word::UPDATES, "update"),
            (word::INITS, "init_table"),
            (word::COMMANDS, "command"),
        ];
        for (word, op) in requests {
            plan.over(block, word, Kind::Counter, name::SERVER_REQUESTS, format!("op=\"{op}\""));
        }
        plan.over(block, word::GET_ROWS, Kind::Counter, name::SERVER_KEYS, "op=\"get\"".to_owned());
        plan.over(block, word::WRITE_KEYS, Kind::Counter, name::SERVER_KEYS, "op=\"write\"".to_owned());
        let totals = [
            (word::MISSING, name::SERVER_MISSING_ROWS),
            (word::GET_BYTES, name::SERVER_ANSWER_BYTES),
            (word::REFUSED, name::SERVER_REFUSED),
            (word::WRONG_SHARD, name::SERVER_WRONG_SHARD),
            (word::INTERNAL, name::SERVER_INTERNAL_ERRORS),
            (word::REPEATED, name::SERVER_REPEATED),
        ];
        totals.iter().for_each(|(word, name)| plan.over(block, *word, Kind::Counter, name, none()));
        let by_thread = [
            (word::ROUNDS, Kind::Counter, name::SERVER_ROUNDS),
            (word::EMPTY, Kind::Counter, name::SERVER_EMPTY_ROUNDS),
            (word::FOUND, Kind::Counter, name::SERVER_READY),
            (word::SLEEPS, Kind::Counter, name::SERVER_SLEEPS),
            (word::LANES, Kind::Gauge, name::SERVER_LANES),
            (word::LANE_BYTES, Kind::Gauge, name::SERVER_LANE_BYTES),
            (word::SLOTS, Kind::Gauge, name::SERVER_SLOTS),
        ];
        for (word, kind, name) in by_thread {
            (0..threads).for_each(|row| plan.of_row(block, row, word, kind, name, format!("thread=\"{row}\"")));
        }
        let counting = is_counting(settings);
        let service = counting
            .then(|| ["get", "put", "update"].map(|op| plan.histogram(name::SERVER_SERVICE, format!("op=\"{op}\""))));
        let folder = if counting { settings.metrics_directory.as_str() } else { "" };
        let page = plan.make(&head(settings, Role::Server, settings.shard_id, incarnation), folder)?;
        let rows = Rows::new(&page, block)?;
        let watch = service.map(|service| Watch { rows: rows.clone(), service, sample_mask: sample_mask(settings) });
        Ok(ServerPage { page, cells, rows, watch })
    }

    /// Of a shard that runs.
    pub(in crate::engine) fn of<F: Fabric>(self, shared: Arc<Shared<F>>) -> ServerSource<F> {
        ServerSource { shared, of: self }
    }
}

/// A running shard's numbers.
#[derive(Debug)]
pub(in crate::engine) struct ServerSource<F: Fabric> {
    shared: Arc<Shared<F>>,
    of: ServerPage,
}

impl<F: Fabric> Source for ServerSource<F> {
    fn page(&self) -> &Arc<Page> {
        &self.of.page
    }

    fn refresh(&self) {
        let (page, cells, shared) = (&*self.of.page, &self.of.cells, &self.shared);
        set(page, cells.info, 1);
        set(page, cells.plane_up, u64::from(!shared.plane_lost.load(Ordering::Relaxed)));
        set(page, cells.clients, shared.guests.count() as u64);
        set(page, cells.clients_max, u64::from(CLIENTS_MAX));
        set_events(page, cells.events);
        let queued = shared.queues.get().map_or(0, |queues| queues.iter().map(|queue| queue.len()).sum());
        set(page, cells.queued, queued as u64);
        cells.checkpoints.refresh(page, &shared.checkpoints);
        for (index, mailbox) in shared.mailboxes.iter().enumerate() {
            let (row, stats) = (self.of.rows.row(index), mailbox.stats());
            let set = |place: usize, value: u64| row[place].store(value, Ordering::Relaxed);
            set(word::SLEEPS, stats.sleeps);
            set(word::LANES, stats.lanes);
            set(word::LANE_BYTES, stats.lane_bytes);
            set(word::SLOTS, stats.slots);
            // A watched thread writes the rest itself.
            if self.of.watch.is_none() {
                store(row, &stats.handled);
                set(word::ROUNDS, stats.rounds);
                set(word::EMPTY, stats.empty);
                set(word::FOUND, stats.found);
            }
        }
        if self.of.watch.is_none() {
            for (index, counts) in (shared.mailboxes.len()..).zip(&shared.worker_counts) {
                store(self.of.rows.row(index), &lock(counts));
            }
        }
        page.cell(cells.refreshes).fetch_add(1, Ordering::Relaxed);
        page.head(place::UPDATED_US).store(unix_us(), Ordering::Relaxed);
    }

    fn totals(&self) -> Vec<Totals> {
        self.refresh();
        let shard = self.shared.settings.shard_id.to_string();
        let mut all = vec![self.server_totals(&shard), self.transport_totals(&shard)];
        all.extend((0..self.shared.mailboxes.len()).map(|thread| self.poller_totals(&shard, thread)));
        all
    }
}

impl<F: Fabric> ServerSource<F> {
    fn sum(&self, word: usize) -> u64 {
        self.of.rows.sum(word)
    }

    fn time(&self, word: usize) -> u64 {
        self.sum(word) * sample_weight(&self.shared.settings)
    }

    fn server_totals(&self, shard: &str) -> Totals {
        let pollers = self.shared.mailboxes.len();
        let gets = |thread: usize| self.of.rows.row(thread)[word::GETS].load(Ordering::Relaxed);
        let least = (0..pollers).min_by_key(|thread| gets(*thread)).unwrap_or(0);
        let most = (0..pollers).max_by_key(|thread| gets(*thread)).unwrap_or(0);
        let (found, looks) = (self.sum(word::FOUND), self.sum(word::LOOKS));
        let (rounds, empty) = (self.sum(word::ROUNDS), self.sum(word::EMPTY));
        let (handled, staged) = (self.sum(word::GETS), self.sum(word::STAGED));
        let pairs = [
            (fields::threads, pollers as u64),
            (fields::scan_rounds, rounds),
            (fields::scanned_slots, looks),
            (fields::ready_slots, found),
            (fields::not_ready_slots, looks.saturating_sub(found)),
            (fields::duplicate_seq_ready, self.sum(word::REPEATED)),
            (fields::inflight_seq_ready, self.sum(word::WAITED)),
            (fields::empty_scan_rounds, empty),
            (fields::ready_rounds, rounds.saturating_sub(empty)),
            (fields::max_ready_per_round, self.of.rows.peak(word::FOUND_MAX)),
            (fields::handled_get, handled),
            (fields::handled_put, self.sum(word::PUTS)),
            (fields::handled_update, self.sum(word::UPDATES)),
            (fields::handled_init, self.sum(word::INITS)),
            (fields::invalid_descriptor, self.sum(word::REFUSED)),
            (fields::wrong_shard, self.sum(word::WRONG_SHARD)),
            (fields::handle_get_ns, self.time(word::GET_NS)),
            (fields::timed_gets, self.time(word::GET_TIMED)),
            (fields::get_batch_get_ns, self.time(word::STORE_NS)),
            (fields::get_index_lookup_ns, self.time(word::LOOKUP_NS)),
            (fields::get_zero_fill_ns, self.time(word::ZERO_NS)),
            (fields::get_row_copy_ns, self.time(word::COPY_NS)),
            (fields::get_rows, self.sum(word::GET_ROWS)),
            (fields::get_value_bytes, self.sum(word::GET_BYTES)),
            (fields::get_missing_rows, self.sum(word::MISSING)),
            (fields::get_direct_sg, handled.saturating_sub(staged)),
            (fields::get_direct_sg_fallback, staged),
            (fields::get_direct_sg_ns, self.time(word::DIRECT_NS)),
            (fields::timed_direct, self.time(word::DIRECT_TIMED)),
            (fields::get_direct_sg_wr, handled.saturating_sub(staged)),
            (fields::handle_put_ns, self.time(word::PUT_NS)),
            (fields::timed_puts, self.time(word::PUT_TIMED)),
            (fields::handle_update_ns, self.time(word::UPDATE_NS)),
            (fields::timed_updates, self.time(word::UPDATE_TIMED)),
            (fields::handle_init_ns, self.time(word::INIT_NS)),
            (fields::timed_inits, self.time(word::INIT_TIMED)),
            (fields::complete_response_ns, self.time(word::ANSWER_NS)),
            (fields::timed_answers, self.time(word::ANSWER_TIMED)),
            (fields::poll_loop_ns, self.sum(word::LOOP_NS)),
            (fields::poller_active, (0..pollers).filter(|thread| gets(*thread) > 0).count() as u64),
            (fields::poller_total_get, (0..pollers).map(gets).sum()),
            (fields::poller_min_get, gets(least)),
            (fields::poller_min_get_thread, least as u64),
            (fields::poller_max_get, gets(most)),
            (fields::poller_max_get_thread, most as u64),
        ];
        totals(&fields::COMPONENT, &pairs, vec![("shard", shard.to_owned())])
    }

    fn transport_totals(&self, shard: &str) -> Totals {
        let answers = self.sum(word::FOUND);
        let pairs = [
            (transport::complete_count, answers),
            (transport::response_payload_writes, self.sum(word::GET_PAYLOADS)),
            (transport::response_status_writes, answers),
            (transport::response_payload_bytes, self.sum(word::GET_BYTES)),
            (transport::complete_response_ns, self.time(word::ANSWER_NS)),
            (transport::timed_completes, self.time(word::ANSWER_TIMED)),
        ];
        totals(&transport::COMPONENT, &pairs, vec![("role", "server".to_owned()), ("shard", shard.to_owned())])
    }

    fn poller_totals(&self, shard: &str, thread: usize) -> Totals {
        let at = |word: usize| self.of.rows.row(thread)[word].load(Ordering::Relaxed);
        let pairs = [
            (poller::thread, thread as u64),
            (poller::scan_rounds, at(word::ROUNDS)),
            (poller::empty_scan_rounds, at(word::EMPTY)),
            (poller::ready_slots, at(word::FOUND)),
            (poller::sleeps, at(word::SLEEPS)),
            (poller::lanes, at(word::LANES)),
            (poller::handled_get, at(word::GETS)),
            (poller::handled_put, at(word::PUTS)),
            (poller::handled_update, at(word::UPDATES)),
        ];
        totals(&poller::COMPONENT, &pairs, vec![("shard", shard.to_owned())])
    }
}

fn totals(
    component: &'static crate::observe::profile::Component,
    pairs: &[(usize, u64)],
    head: Vec<(&'static str, String)>,
) -> Totals {
    let mut counters = vec![0; component.counters.len()];
    pairs.iter().for_each(|(place, value)| counters[*place] = *value);
    Totals { component, head, counters }
}
