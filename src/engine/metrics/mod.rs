//! Numbers of a client, a shard or a rank: which there are, where they lie, and who brings those up to date that nobody writes
//! while requests run.

pub(super) mod client;
pub(crate) mod figures;
mod keeper;
pub(super) mod server;

pub(super) use keeper::Keeper;

use crate::error::{Error, Result, Status};
use crate::ids::Incarnation;
use crate::observe::layout::{Head, Role};
use crate::observe::metrics::{Kind, name};
use crate::observe::page::{Cell, Page, Plan};
use crate::observe::profile::Component;
use crate::observe::sample::{Sample, lookup, prometheus, samples};
use crate::observe::{directory, recent};
use crate::options::Settings;
use crate::sync::{Arc, Ordering};
use crate::time::unix_us;

/// Whether requests are to be counted.
pub(super) fn is_counting(settings: &Settings) -> bool {
    settings.metrics
        || !settings.metrics_directory.is_empty()
        || settings.metrics_port.is_some()
        || settings.profile_interval_ms > 0
}

/// Bits that a number must have none of to be timed; all bits: none is.
pub(super) fn sample_mask(settings: &Settings) -> u64 {
    match settings.metrics_sample_every {
        0 => u64::MAX,
        every => u64::from(every.next_power_of_two()) - 1,
    }
}

/// For how many requests a timed one stands.
pub(super) fn sample_weight(settings: &Settings) -> u64 {
    sample_mask(settings).wrapping_add(1).max(1)
}

/// Whose page it is.
pub(in crate::engine) fn head(settings: &Settings, role: Role, number: u32, incarnation: Incarnation) -> Head {
    Head {
        pid: std::process::id(),
        role,
        start_ticks: directory::start_ticks(),
        pid_namespace: directory::pid_namespace(),
        created_us: unix_us(),
        updated_us: unix_us(),
        number,
        num_shards: settings.num_shards,
        incarnation: incarnation.0,
        port: 0,
        deployment: settings.deployment_id.clone(),
        namespace: settings.namespace.clone(),
        host: super::host_name(),
    }
}

/// Labels of `reclane_info`.
pub(in crate::engine) fn info_labels(role: &str, number: u32, fabric: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!("role=\"{role}\",number=\"{number}\",fabric=\"{fabric}\",version=\"{version}\"")
}

/// Events by level.
pub(in crate::engine) fn event_cells(plan: &mut Plan) -> [Cell; 3] {
    ["error", "warn", "info"].map(|level| plan.cell(Kind::Counter, name::EVENTS, format!("level=\"{level}\"")))
}

pub(in crate::engine) fn set_events(page: &Page, cells: [Cell; 3]) {
    cells.iter().zip(recent::counts()).for_each(|(cell, count)| set(page, *cell, count));
}

pub(in crate::engine) fn set(page: &Page, cell: Cell, value: u64) {
    page.cell(cell).store(value, Ordering::Relaxed);
}

/// The totals of one component, and the fields that a line about it begins with.
#[derive(Debug)]
pub struct Totals {
    /// The component.
    pub component: &'static Component,
    /// shard, client_id, role.
    pub head: Vec<(&'static str, String)>,
    /// In the order of the component's counters.
    pub counters: Vec<u64>,
}

/// Where the numbers of one client or shard come from. Threads: any.
pub(in crate::engine) trait Source: Send + Sync {
    /// Where they lie.
    fn page(&self) -> &Arc<Page>;

    /// Brings those up to date that nobody writes while requests run.
    fn refresh(&self);

    /// The totals of its components, always the same ones in the same order.
    fn totals(&self) -> Vec<Totals>;
}

/// All numbers, brought up to date.
pub(in crate::engine) fn numbers(source: &dyn Source) -> Vec<Sample> {
    source.refresh();
    let page = source.page();
    samples(&page.image(), page.series())
}

/// All numbers as Prometheus' text.
pub(in crate::engine) fn text(source: &dyn Source) -> String {
    prometheus(&numbers(source))
}

/// A number by name: of a metric, or `component/field` of a profile.
///
/// # Errors
/// `InvalidArgument` when there is none.
pub(in crate::engine) fn number(source: &dyn Source, name: &str) -> Result<u64> {
    let Some((component, field)) = name.split_once('/') else { return lookup(&numbers(source), name) };
    let all = source.totals();
    let found = all.iter().filter(|totals| totals.component.name == component);
    let values: Vec<u64> = found.filter_map(|totals| totals.component.value(&totals.counters, field)).collect();
    match values.first() {
        Some(first) if values.len() == 1 => Ok(*first),
        Some(_) => Ok(values.iter().fold(0, |sum, value| sum.wrapping_add(*value))),
        None => Err(Error::new(
            Status::InvalidArgument,
            format!("'{name}' names no field of a profile; docs/metrics.md has the names"),
        )),
    }
}
