//! The sinks that the options log-file and log-level ask for.

use crate::error::Result;
use crate::observe::{Guard, Sink, install};
use crate::options::Settings;
use crate::sync::{Arc, Mutex, Weak, lock};

/// The sinks that are open, by what the option says: two objects of one process that name the same place share it, so
/// that a line is written once.
static OPEN: Mutex<Vec<(String, Weak<Guard>)>> = Mutex::new(Vec::new());

/// Opens the sink that the settings name, or shares it; None when they name none. It is flushed and closed when the last
/// object that asked for it is.
///
/// # Errors
/// `OsError` when the file cannot be opened.
pub(super) fn sink(settings: &Settings) -> Result<Option<Arc<Guard>>> {
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
