//! The numbers of a rank. Nothing is counted per operation but what the log of a lane keeps anyway.

use super::core::Shared;
use crate::engine::metrics::{Source, Totals, event_cells, head, info_labels, is_counting, set, set_events};
use crate::error::Result;
use crate::fabric::Fabric;
use crate::memory::{Purpose, Tally};
use crate::observe::layout::{Role, place};
use crate::observe::metrics::{Kind, name};
use crate::observe::page::{Cell, Page, Plan};
use crate::sync::{Arc, Ordering, lock};
use crate::time::unix_us;
use crate::wire::region::REGIONS_MAX;

const PURPOSES: [(Purpose, &str); 2] = [(Purpose::Data, "data"), (Purpose::Atomics, "atomics")];
/// In the order of the bits of an operation's kind.
const OPS: [&str; 4] = ["write", "read", "fetch_add", "compare_swap"];
const STATES: [&str; 3] = ["connected", "idle", "gone"];

#[derive(Debug)]
struct Cells {
    info: Cell,
    plane_up: Cell,
    refreshes: Cell,
    events: [Cell; 3],
    operations: [Cell; 4],
    bytes: [Cell; 2],
    not_executed: Cell,
    unknown: Cell,
    under_way: Cell,
    places: Cell,
    lanes: [[Cell; 3]; 2],
    connections: [Cell; 2],
    guests: Cell,
    peers: Cell,
    peers_max: Cell,
    regions: Cell,
    regions_max: Cell,
    region_bytes: Cell,
    served: Cell,
    held: Cell,
}

impl Cells {
    fn plan(plan: &mut Plan, rank: u32, fabric: &str) -> Cells {
        let events = event_cells(plan);
        let mut cell = |kind, name: &str, labels: String| plan.cell(kind, name, labels);
        let label = |name: &str, value: &str| format!("{name}=\"{value}\"");
        let none = String::new;
        Cells {
            info: cell(Kind::Gauge, name::INFO, info_labels("rank", rank, fabric)),
            plane_up: cell(Kind::Gauge, name::CONTROL_PLANE_UP, none()),
            refreshes: cell(Kind::Counter, name::REFRESHES, none()),
            events,
            operations: OPS.map(|op| cell(Kind::Counter, name::RANK_OPERATIONS, label("op", op))),
            bytes: ["write", "read"].map(|op| cell(Kind::Counter, name::RANK_BYTES, label("op", op))),
            not_executed: cell(Kind::Counter, name::RANK_FAILED, label("fate", "not_executed")),
            unknown: cell(Kind::Counter, name::RANK_FAILED, label("fate", "unknown")),
            under_way: cell(Kind::Gauge, name::RANK_UNDER_WAY, none()),
            places: cell(Kind::Gauge, name::RANK_PLACES, none()),
            lanes: PURPOSES.map(|(_, purpose)| {
                STATES.map(|state| {
                    cell(Kind::Gauge, name::RANK_LANES, format!("purpose=\"{purpose}\",state=\"{state}\""))
                })
            }),
            connections: PURPOSES
                .map(|(_, purpose)| cell(Kind::Counter, name::RANK_CONNECTIONS, label("purpose", purpose))),
            guests: cell(Kind::Gauge, name::RANK_GUESTS, none()),
            peers: cell(Kind::Gauge, name::RANK_PEERS, none()),
            peers_max: cell(Kind::Gauge, name::RANK_PEERS_MAX, none()),
            regions: cell(Kind::Gauge, name::RANK_REGIONS, none()),
            regions_max: cell(Kind::Gauge, name::RANK_REGIONS_MAX, none()),
            region_bytes: cell(Kind::Gauge, name::RANK_REGION_BYTES, none()),
            served: cell(Kind::Counter, name::RANK_SERVED, none()),
            held: cell(Kind::Gauge, name::RANK_HELD, none()),
        }
    }
}

/// A running rank's numbers.
#[derive(Debug)]
pub(super) struct RankSource<F: Fabric> {
    shared: Arc<Shared<F>>,
    page: Arc<Page>,
    cells: Cells,
}

impl<F: Fabric> RankSource<F> {
    /// Makes the page.
    ///
    /// # Errors
    /// `OsError` naming the file.
    pub(super) fn new(shared: &Arc<Shared<F>>) -> Result<RankSource<F>> {
        let settings = &shared.settings;
        let mut plan = Plan::default();
        let cells = Cells::plan(&mut plan, shared.rank, F::NAME);
        let folder = if is_counting(settings) { settings.metrics_directory.as_str() } else { "" };
        // To the control plane a rank is a server of its deployment, and so it is to those who look.
        let page = plan.make(&head(settings, Role::Server, shared.rank, shared.incarnation), folder)?;
        Ok(RankSource { shared: Arc::clone(shared), page, cells })
    }

    /// What the lanes have posted, and how they are.
    fn refresh_lanes(&self) {
        let (page, cells, shared) = (&*self.page, &self.cells, &*self.shared);
        let (mut sum, mut under_way) = (Tally::default(), 0);
        let (mut lanes, mut connections) = ([[0_u64; 3]; 2], [0_u64; 2]);
        for other in &shared.others {
            let facts = other.data.facts();
            under_way += facts.posted - facts.retired;
            add(&mut sum, &other.data.tally());
            let (is_gone, generations) = {
                let words = other.words();
                (words.gone.is_some(), words.generations)
            };
            for (place, (purpose, _)) in PURPOSES.iter().enumerate() {
                let state = if other.lane(*purpose).is_connected() { 0 } else { 1 + usize::from(is_gone) };
                lanes[place][state] += 1;
                connections[place] += u64::from(generations[*purpose as usize]);
            }
        }
        cells.operations.iter().zip(sum.operations).for_each(|(cell, count)| set(page, *cell, count));
        cells.bytes.iter().zip(sum.bytes).for_each(|(cell, count)| set(page, *cell, count));
        set(page, cells.not_executed, sum.not_executed);
        set(page, cells.unknown, sum.unknown);
        set(page, cells.under_way, under_way);
        let states = cells.lanes.iter().flatten().zip(lanes.iter().flatten());
        states.for_each(|(cell, count)| set(page, *cell, *count));
        cells.connections.iter().zip(connections).for_each(|(cell, count)| set(page, *cell, count));
    }
}

fn add(sum: &mut Tally, one: &Tally) {
    sum.operations.iter_mut().zip(one.operations).for_each(|(sum, one)| *sum += one);
    sum.bytes.iter_mut().zip(one.bytes).for_each(|(sum, one)| *sum += one);
    sum.not_executed += one.not_executed;
    sum.unknown += one.unknown;
}

impl<F: Fabric> Source for RankSource<F> {
    fn page(&self) -> &Arc<Page> {
        &self.page
    }

    fn refresh(&self) {
        let (page, cells, shared) = (&*self.page, &self.cells, &*self.shared);
        set(page, cells.info, 1);
        set(page, cells.plane_up, u64::from(!shared.plane_lost.load(Ordering::Relaxed)));
        set_events(page, cells.events);
        self.refresh_lanes();
        set(page, cells.places, shared.places as u64);
        set(page, cells.guests, lock(&shared.guests).len() as u64);
        set(page, cells.peers, shared.present() as u64);
        set(page, cells.peers_max, shared.others.len().saturating_sub(1) as u64);
        let regions = shared.home.facts();
        set(page, cells.regions, regions.len() as u64);
        set(page, cells.regions_max, REGIONS_MAX as u64);
        set(page, cells.region_bytes, regions.iter().map(|region| region.bytes as u64).sum());
        set(page, cells.served, shared.served.load(Ordering::Relaxed));
        set(page, cells.held, u64::from(shared.gate.is_closed()));
        page.cell(cells.refreshes).fetch_add(1, Ordering::Relaxed);
        page.head(place::UPDATED_US).store(unix_us(), Ordering::Relaxed);
    }

    fn totals(&self) -> Vec<Totals> {
        Vec::new()
    }
}
