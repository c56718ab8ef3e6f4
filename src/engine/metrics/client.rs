//! The numbers of a client.

use super::{Source, Totals, event_cells, head, info_labels, is_counting, sample_mask, sample_weight, set, set_events};
use crate::engine::client::core::Shared;
use crate::error::Result;
use crate::fabric::Fabric;
use crate::ids::Incarnation;
use crate::lane::LaneState;
use crate::observe::layout::{Role, place};
use crate::observe::metrics::{Kind, name};
use crate::observe::page::{Block, Cell, Page, Plan, Rows};
use crate::observe::profile::{client as fields, transport};
use crate::options::Settings;
use crate::ps::client::tally::{FAULT_WIDTH, Tallies, WIDTH, fault, word};
use crate::rpc::Channel;
use crate::sync::{Arc, Ordering, lock};
use crate::time::unix_us;

const STATES: [LaneState; 6] = [
    LaneState::Unconnected,
    LaneState::Connecting,
    LaneState::Active,
    LaneState::Dirty,
    LaneState::Rebuilding,
    LaneState::Dead,
];
const STATE_NAMES: [&str; STATES.len()] = ["unconnected", "connecting", "active", "dirty", "rebuilding", "dead"];

/// Gauges of one shard.
#[derive(Debug)]
struct ShardCells {
    uses: Cell,
    slots: Cell,
    held: Cell,
    lanes: [Cell; STATES.len()],
    rebuilds: Cell,
    health: Cell,
}

#[derive(Debug)]
struct Cells {
    info: Cell,
    plane_up: Cell,
    refreshes: Cell,
    events: [Cell; 3],
    lane_bytes: Cell,
    buffers: Cell,
    batches: Cell,
    batches_max: Cell,
    shards: Vec<ShardCells>,
}

/// A client's page, before the client itself is there.
#[derive(Debug)]
pub(in crate::engine) struct ClientPage {
    page: Arc<Page>,
    cells: Cells,
}

/// What identifies a client.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Who {
    pub(in crate::engine) number: u32,
    pub(in crate::engine) incarnation: Incarnation,
    pub(in crate::engine) fabric: &'static str,
}

impl ClientPage {
    /// Makes the page, and what the client counts into, if it is to.
    ///
    /// # Errors
    /// `OsError` naming the file.
    pub(in crate::engine) fn make(
        settings: &Settings,
        who: Who,
        slots: &[usize],
    ) -> Result<(ClientPage, Option<Tallies>)> {
        let mut plan = Plan::default();
        let cells = cells(&mut plan, who, slots.len());
        let counting = is_counting(settings);
        let blocks: Vec<Block> = if counting {
            (0..).zip(slots).map(|(shard, slots)| block(&mut plan, shard, *slots)).collect()
        } else {
            Vec::new()
        };
        let faults = counting.then(|| faults(&mut plan, slots.len()));
        let latency = counting
            .then(|| ["get", "put", "update"].map(|op| plan.histogram(name::CLIENT_LATENCY, format!("op=\"{op}\""))));
        let folder = if counting { settings.metrics_directory.as_str() } else { "" };
        let page = plan.make(&head(settings, Role::Client, who.number, who.incarnation), folder)?;
        let tallies = match (faults, latency) {
            (Some(faults), Some(latency)) => Some(Tallies {
                slots: blocks.into_iter().map(|block| Rows::new(&page, block)).collect::<Result<_>>()?,
                faults: Rows::new(&page, faults)?,
                latency,
                page: Arc::clone(&page),
                sample_mask: sample_mask(settings),
            }),
            _ => None,
        };
        Ok((ClientPage { page, cells }, tallies))
    }

    /// Of a client that is there.
    pub(in crate::engine) fn of<F: Fabric>(self, shared: Arc<Shared<F>>, who: Who) -> ClientSource<F> {
        ClientSource { shared, page: self.page, cells: self.cells, who }
    }
}

fn of_shard(shard: usize) -> String {
    format!("shard=\"{shard}\"")
}

fn cells(plan: &mut Plan, who: Who, shards: usize) -> Cells {
    let events = event_cells(plan);
    let mut gauge = |kind, name: &str, labels: String| plan.cell(kind, name, labels);
    Cells {
        info: gauge(Kind::Gauge, name::INFO, info_labels("client", who.number, who.fabric)),
        plane_up: gauge(Kind::Gauge, name::CONTROL_PLANE_UP, String::new()),
        refreshes: gauge(Kind::Counter, name::REFRESHES, String::new()),
        events,
        lane_bytes: gauge(Kind::Gauge, name::CLIENT_LANE_BYTES, String::new()),
        buffers: gauge(Kind::Gauge, name::CLIENT_BUFFERS, String::new()),
        batches: gauge(Kind::Gauge, name::CLIENT_BATCHES, String::new()),
        batches_max: gauge(Kind::Gauge, name::CLIENT_BATCHES_MAX, String::new()),
        shards: (0..shards)
            .map(|shard| ShardCells {
                uses: gauge(Kind::Counter, name::CLIENT_SLOT_USES, of_shard(shard)),
                slots: gauge(Kind::Gauge, name::CLIENT_SLOTS, of_shard(shard)),
                held: gauge(Kind::Gauge, name::CLIENT_SLOTS_HELD, of_shard(shard)),
                lanes: STATE_NAMES.map(|state| {
                    gauge(Kind::Gauge, name::CLIENT_LANES, format!("{},state=\"{state}\"", of_shard(shard)))
                }),
                rebuilds: gauge(Kind::Counter, name::CLIENT_REBUILDS, of_shard(shard)),
                health: gauge(Kind::Gauge, name::CLIENT_SHARD_HEALTH, of_shard(shard)),
            })
            .collect(),
    }
}

/// Rows of the slots of one shard.
fn block(plan: &mut Plan, shard: usize, slots: usize) -> Block {
    let block = plan.block(slots.max(1), WIDTH);
    for (place, op) in [(word::GETS, "get"), (word::PUTS, "put"), (word::UPDATES, "update"), (word::OTHERS, "other")] {
        let labels = format!("{},op=\"{op}\"", of_shard(shard));
        plan.over(block, place, Kind::Counter, name::CLIENT_REQUESTS, labels);
    }
    plan.over(block, word::KEYS, Kind::Counter, name::CLIENT_KEYS, of_shard(shard));
    plan.over(block, word::BYTES, Kind::Counter, name::CLIENT_ANSWER_BYTES, of_shard(shard));
    plan.over(block, word::PAYLOADS, Kind::Counter, name::CLIENT_PAYLOADS, of_shard(shard));
    plan.over(block, word::OWN_READS, Kind::Counter, name::CLIENT_OWN_READS, of_shard(shard));
    block
}

fn faults(plan: &mut Plan, shards: usize) -> Block {
    let block = plan.block(shards.max(1), FAULT_WIDTH);
    let names = [
        (fault::FAILED, name::CLIENT_FAILED),
        (fault::TIMEOUTS, name::CLIENT_TIMEOUTS),
        (fault::RETRIES, name::CLIENT_RETRIES),
        (fault::NO_SLOT, name::CLIENT_NO_SLOT),
    ];
    for (place, name) in names {
        for shard in 0..shards {
            plan.of_row(block, shard, place, Kind::Counter, name, of_shard(shard));
        }
    }
    block
}

/// A running client's numbers.
#[derive(Debug)]
pub(in crate::engine) struct ClientSource<F: Fabric> {
    shared: Arc<Shared<F>>,
    page: Arc<Page>,
    cells: Cells,
    who: Who,
}

impl<F: Fabric> ClientSource<F> {
    fn refresh_shard<R>(&self, cells: &ShardCells, shard: usize, channel: &Channel<F, R>) {
        let page = &*self.page;
        set(page, cells.uses, channel.use_count());
        set(page, cells.slots, channel.slot_count() as u64);
        set(page, cells.held, channel.held_count() as u64);
        let (mut lanes, mut attempts) = ([0_u64; STATES.len()], 0);
        for lane in channel.lanes() {
            let life = lane.life();
            attempts += u64::from(life.attempts());
            if let Some(place) = STATES.iter().position(|state| *state == life.state()) {
                lanes[place] += 1;
            }
        }
        cells.lanes.iter().zip(lanes).for_each(|(cell, count)| set(page, *cell, count));
        set(page, cells.rebuilds, attempts);
        let health = self.shared.health.get(shard).map_or(0, |health| health.load(Ordering::Relaxed));
        set(page, cells.health, u64::from(health));
    }
}

impl<F: Fabric> Source for ClientSource<F> {
    fn page(&self) -> &Arc<Page> {
        &self.page
    }

    fn refresh(&self) {
        let (page, cells) = (&*self.page, &self.cells);
        set(page, cells.info, 1);
        set(page, cells.plane_up, u64::from(self.shared.plane_up.load(Ordering::Relaxed)));
        set_events(page, cells.events);
        set(page, cells.lane_bytes, self.shared.lane_bytes());
        set(page, cells.buffers, lock(&self.shared.buffers).len() as u64);
        let (batches, most) = self.shared.ps.batch_load();
        set(page, cells.batches, batches as u64);
        set(page, cells.batches_max, most as u64);
        for ((shard, cells), channel) in (0..).zip(&cells.shards).zip(self.shared.ps.channels()) {
            self.refresh_shard(cells, shard, channel);
        }
        page.cell(cells.refreshes).fetch_add(1, Ordering::Relaxed);
        page.head(place::UPDATED_US).store(unix_us(), Ordering::Relaxed);
    }

    fn totals(&self) -> Vec<Totals> {
        let weight = sample_weight(&self.shared.settings);
        let ps = &self.shared.ps;
        let mut all = Vec::new();
        for (shard, channel) in ps.channels().iter().enumerate() {
            let (held, uses) = (channel.held_count() as u64, channel.use_count());
            let rows = ps.tallies().and_then(|tallies| tallies.slots.get(shard));
            let sum = |word: usize| rows.map_or(0, |rows| rows.sum(word));
            let time = |word: usize| sum(word) * weight;
            let no_slot = ps.tallies().map_or(0, |t| t.faults.row(shard)[fault::NO_SLOT].load(Ordering::Relaxed));
            let answered = [word::GETS, word::PUTS, word::UPDATES, word::OTHERS].map(sum).iter().sum::<u64>();
            let mut counters = vec![0; fields::COMPONENT.counters.len()];
            let pairs = [
                (fields::submit_count, uses + held),
                (fields::wait_count, answered),
                (fields::revoke_count, uses),
                (fields::acquire_qp_count, uses + held),
                (fields::acquire_qp_failures, no_slot),
                (fields::submit_request_ns, time(word::SUBMIT_NS)),
                (fields::wait_status_ns, time(word::WAIT_NS)),
                (fields::copy_response_ns, time(word::COPY_NS)),
                (fields::copied_bytes, sum(word::BYTES)),
                (fields::revoke_resource_ns, time(word::REVOKE_NS)),
                (fields::timed_requests, time(word::TIMED)),
                (fields::timed_revokes, time(word::TIMED_REVOKES)),
                (fields::pending_rpc_peak, rows.map_or(0, |rows| rows.peak(word::PENDING_PEAK)).max(held)),
                (fields::pending_rpc_sum, sum(word::PENDING)),
                (fields::pending_rpc_looks, sum(word::TIMED)),
                (fields::pending_rpc_last, held),
            ];
            pairs.iter().for_each(|(place, value)| counters[*place] = *value);
            let head = vec![("shard", shard.to_string()), ("client_id", self.who.number.to_string())];
            all.push(Totals { component: &fields::COMPONENT, head: head.clone(), counters });

            let mut counters = vec![0; transport::COMPONENT.counters.len()];
            let pairs = [
                (transport::submit_count, uses + held),
                (transport::submit_descriptor_writes, sum(word::PAYLOADS)),
                (transport::submit_commit_writes, uses + held),
                (transport::submit_request_ns, time(word::SUBMIT_NS)),
                (transport::timed_submits, time(word::TIMED)),
                (transport::complete_count, answered),
                (transport::response_payload_writes, sum(word::ANSWER_PAYLOADS)),
                (transport::response_status_writes, answered),
                (transport::response_payload_bytes, sum(word::BYTES)),
            ];
            pairs.iter().for_each(|(place, value)| counters[*place] = *value);
            let head = [vec![("role", "client".to_owned())], head].concat();
            all.push(Totals { component: &transport::COMPONENT, head, counters });
        }
        all
    }
}
