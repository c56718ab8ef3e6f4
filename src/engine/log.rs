//! The sinks of an open client, server or rank: that which the options log-file and log-level ask for, and the last
//! events in memory, for people who look at the deployment.

use crate::error::Result;
use crate::observe::{Guard, Sink, install, recent};
use crate::options::Settings;
use crate::sync::{Arc, Mutex, Weak, lock};

/// The sinks that are open, by what the option says: two objects of one process that name the same place share it, so
/// that a line is written once.
static OPEN: Mutex<Vec<(String, Weak<Guard>)>> = Mutex::new(Vec::new());

/// Both sinks, as long as this lives.
pub(super) struct Sinks {
    _named: Option<Arc<Guard>>,
    _recent: Arc<Guard>,
}

impl core::fmt::Debug for Sinks {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Sinks").finish_non_exhaustive()
    }
}

/// Opens both, or shares those that are open.
///
/// # Errors
/// `OsError` when the file cannot be opened.
pub(super) fn sinks(settings: &Settings) -> Result<Sinks> {
    Ok(Sinks { _named: named(settings)?, _recent: recent::keep() })
}

/// The sink that the settings name; None when they name none. It is flushed and closed when the last object that asked
/// for it is.
fn named(settings: &Settings) -> Result<Option<Arc<Guard>>> {
    if settings.log_file.is_empty() {
        return Ok(None);
    }
    let mut open = lock(&OPEN);
    open.retain(|(_, guard)| guard.strong_count() > 0);
    if let Some(guard) = open.iter().find(|(name, _)| *name == settings.log_file).and_then(|(_, guard)| guard.upgrade())
    {
        return Ok(Some(guard));
    }
    let guard = Arc::new(install(Sink::from_text(&settings.log_file), settings.log_level)?);
    open.push((settings.log_file.clone(), Arc::downgrade(&guard)));
    Ok(Some(guard))
}
