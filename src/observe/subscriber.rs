//! The library's own `tracing` dispatcher: one for the process, asked only while a sink is installed.

use super::record::EventRecord;
use super::sink::Active;
use crate::sync::{Arc, AtomicUsize, Mutex, OnceLock, Ordering, RwLock, lock};
use crate::time;
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Dispatch, Event, Metadata, Subscriber, dispatcher};

/// Sinks, in the order of their installation.
static SINKS: RwLock<Vec<Arc<Active>>> = RwLock::new(Vec::new());
/// How many there are, for the fast answer that there is none.
static COUNT: AtomicUsize = AtomicUsize::new(0);
static DISPATCH: OnceLock<Dispatch> = OnceLock::new();

struct Router;

impl Subscriber for Router {
    // Sinks come and go, so no place in the code is told "always" or "never".
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        sinks().iter().any(|sink| *metadata.level() <= sink.filter)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(sinks().iter().map(|sink| sink.filter).max().unwrap_or(LevelFilter::OFF))
    }

    fn event(&self, event: &Event<'_>) {
        let record = EventRecord::of(event, time::unix_us());
        for sink in sinks().iter().filter(|sink| record.level <= sink.filter) {
            sink.send(&record);
        }
    }

    // We make no spans; one that a callback of the host makes inside an event of ours means nothing here.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn sinks() -> Vec<Arc<Active>> {
    SINKS.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
}

fn change(edit: impl FnOnce(&mut Vec<Arc<Active>>)) {
    // One change at a time, up to the end: two rebuilds of tracing's cache side by side could end with the levels of the
    // older one.
    static CHANGE: Mutex<()> = Mutex::new(());
    let _one = lock(&CHANGE);
    {
        let mut sinks = SINKS.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        edit(&mut sinks);
        COUNT.store(sinks.len(), Ordering::Relaxed);
    }
    let dispatch = DISPATCH.get_or_init(|| Dispatch::new(Router));
    // The levels that anybody listens to may have changed. `tracing` asks only the thread's own dispatcher as long as
    // there is one dispatcher in the process, so this must happen under ours.
    dispatcher::with_default(dispatch, tracing::callsite::rebuild_interest_cache);
}

pub(super) fn add(sink: &Arc<Active>) {
    change(|sinks| sinks.push(Arc::clone(sink)));
}

pub(super) fn remove(sink: &Arc<Active>) {
    change(|sinks| sinks.retain(|other| !Arc::ptr_eq(other, sink)));
}

/// Runs `report` with our dispatcher in place of the thread's, if a sink is installed; else does nothing. So a place in
/// the code meets `tracing` for the first time under our dispatcher, and its cached answer is ours.
pub(super) fn deliver(report: impl FnOnce()) {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return;
    }
    if let Some(dispatch) = DISPATCH.get() {
        dispatcher::with_default(dispatch, report);
    }
}

/// Writes a line that is no event to every sink that takes lines; false if there was none.
pub(super) fn deliver_line(line: &str) -> bool {
    let mut written = false;
    for sink in sinks() {
        written |= sink.send_line(line);
    }
    written
}
