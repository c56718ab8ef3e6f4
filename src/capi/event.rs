//! Events: what the library has to say, one line of key=value each.
//!
//! The options log-level and log-file send events to a file or to standard error; a sink sends them to the host, too. By
//! default they go nowhere.

use core::ffi::{c_char, c_void};
use std::ffi::CString;

use super::callback::{self, Inside};
use super::error::reclane_error;
use super::store::reclane_drop_fn;
use super::structs::{self, Versioned};
use super::{fork, guard};
use crate::error::{Error, Result, Status};
use crate::observe::{self, EventRecord, Level, Sink};
use crate::options::LogLevel;
use crate::sync::{Arc, AtomicBool, Mutex, Ordering, lock};

/// How much an event matters: values of reclane_event.level. Treat an unknown value as "some other".
#[repr(u32)]
#[derive(Clone, Copy, Debug)]
pub enum reclane_level {
    /// Something is lost and somebody should act.
    Error = 1,
    /// Something is lost; the library deals with it.
    Warn = 2,
    /// Something happens rarely and in order: a start, a join, an end.
    Info = 3,
    /// For the people who work on the library.
    Debug = 4,
    /// The same, with everything.
    Trace = 5,
}

/// One event. Valid during the callback only.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct reclane_event {
    /// sizeof(reclane_event) of the library: fields beyond it are not there.
    pub struct_size: u32,
    /// A reclane_level.
    pub level: u32,
    /// Microseconds since 1970-01-01 UTC.
    pub time_us: u64,
    /// Its name, "lane_dirty" say; docs/errors.md has the list. NUL-terminated UTF-8.
    pub name: *const c_char,
    /// The whole event, "time=... level=warn event=lane_dirty shard=1 ...", NUL-terminated UTF-8.
    pub line: *const c_char,
    /// Bytes of line without the NUL.
    pub line_length: u64,
}

/// Takes one event. Runs on one thread of the library, one event after the other. It may block: events that do not fit
/// the queue meanwhile are dropped and counted. It must not call the stop, shutdown and close functions of this library.
pub type reclane_event_fn = Option<unsafe extern "C-unwind" fn(user_data: *mut c_void, event: *const reclane_event)>;

/// Where events go. Zero the struct, set struct_size = sizeof(reclane_event_sink) and on_event.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct reclane_event_sink {
    /// sizeof(reclane_event_sink).
    pub struct_size: u32,
    /// Highest reclane_level that is wanted. 0 means RECLANE_LEVEL_INFO.
    pub level: u32,
    /// Given back to on_event.
    pub user_data: *mut c_void,
    /// May be NULL.
    pub drop_user_data: reclane_drop_fn,
    /// Required.
    pub on_event: reclane_event_fn,
}

// SAFETY: repr(C), `struct_size` first; zero is a valid pointer, integer and `Option` of a function.
unsafe impl Versioned for reclane_event_sink {
    const NAME: &'static str = "reclane_event_sink";
    const FIRST_SIZE: usize = 32;
}
const _: () = assert!(size_of::<reclane_event_sink>() == 32 && size_of::<reclane_event>() == 40);

/// The host's sink, and whether the library has to drop its `user_data`.
struct Host {
    sink: reclane_event_sink,
    owns_user_data: AtomicBool,
}

// SAFETY: the header demands of the host that its callback and `user_data` can be used from the library's threads.
unsafe impl Send for Host {}
// SAFETY: as above; calls come one after the other.
unsafe impl Sync for Host {}

impl Drop for Host {
    fn drop(&mut self) {
        // Relaxed: dropping has exclusive access.
        if self.owns_user_data.load(Ordering::Relaxed)
            && let Some(drop_user_data) = self.sink.drop_user_data
        {
            let _inside = Inside::enter();
            // SAFETY: the host gave this function for this pointer, and it is called once.
            unsafe { drop_user_data(self.sink.user_data) };
        }
    }
}

/// The sink at work.
static ACTIVE: Mutex<Option<observe::Guard>> = Mutex::new(None);

impl Host {
    fn tell(&self, record: &EventRecord) {
        let Some(on_event) = self.sink.on_event else { return };
        // Values come from anywhere; a NUL inside would hide the rest from C.
        let text = |text: &str| CString::new(text.replace('\0', " ")).unwrap_or_default();
        let (name, line) = (text(&record.name), text(&record.line()));
        let event = reclane_event {
            struct_size: u32::try_from(size_of::<reclane_event>()).unwrap_or(u32::MAX),
            level: level_number(record.level),
            time_us: record.time_us,
            name: name.as_ptr(),
            line: line.as_ptr(),
            line_length: line.as_bytes().len() as u64,
        };
        let _inside = Inside::enter();
        // SAFETY: the host's function with its own data; the event lives during the call.
        unsafe { on_event(self.sink.user_data, &raw const event) };
    }
}

fn level_number(level: Level) -> u32 {
    match level {
        Level::ERROR => reclane_level::Error as u32,
        Level::WARN => reclane_level::Warn as u32,
        Level::INFO => reclane_level::Info as u32,
        Level::DEBUG => reclane_level::Debug as u32,
        Level::TRACE => reclane_level::Trace as u32,
    }
}

fn install(sink: reclane_event_sink) -> Result<observe::Guard> {
    if sink.on_event.is_none() {
        return Err(Error::new(Status::NullPointer, "reclane_event_sink.on_event is required but NULL"));
    }
    let level = match sink.level {
        0 | 3 => LogLevel::Info,
        1 => LogLevel::Error,
        2 => LogLevel::Warn,
        4 => LogLevel::Debug,
        5 => LogLevel::Trace,
        other => {
            return Err(Error::new(
                Status::InvalidArgument,
                format!("reclane_event_sink.level {other} is none of 0..5"),
            ));
        }
    };
    let host = Arc::new(Host { sink, owns_user_data: AtomicBool::new(false) });
    let told = Arc::clone(&host);
    let active = observe::install(Sink::Callback(Box::new(move |record| told.tell(record))), level)?;
    // Relaxed: see `drop`; the thread that drops last has joined or been joined.
    host.owns_user_data.store(true, Ordering::Relaxed);
    Ok(active)
}

/// Sends the events of this process to the host's callback, beside the places that the options name.
///
/// sink   where events go; copied. It takes the place of the one before. NULL takes the present one away. When the call
///        returns, the one before has got what was reported until then, is not called any more, and its user_data was
///        dropped. On RECLANE_STATUS_OK the library owns sink->user_data and calls sink->drop_user_data once; on any
///        other status it stays the caller's.
/// error  may be NULL; filled on failure only.
///
/// RECLANE_STATUS_NULL_POINTER      on_event is NULL
/// RECLANE_STATUS_INVALID_ARGUMENT  level is none of 0..5
/// RECLANE_STATUS_WOULD_DEADLOCK    called from inside a callback
/// RECLANE_STATUS_STRUCT_SIZE       sink or error has a size that cannot be, or an unknown tail
/// RECLANE_STATUS_OS_ERROR          no thread could be started
/// RECLANE_STATUS_FORKED            the process was forked from one that uses the library
/// Threads: any.  Blocks: until the callbacks of the sink before have returned.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn reclane_set_event_sink(sink: *const reclane_event_sink, error: *mut reclane_error) -> Status {
    let body = || {
        callback::check_outside("reclane_set_event_sink")?;
        fork::check()?;
        let fresh = if sink.is_null() {
            None
        } else {
            fork::watch()?;
            // SAFETY: the caller vouches for the struct.
            Some(install(unsafe { structs::read(sink) }?)?)
        };
        let before = core::mem::replace(&mut *lock(&ACTIVE), fresh);
        // Outside the lock: this waits for the host's callback.
        drop(before);
        // The first event that a host hears: its sink works.
        crate::event!(Level::DEBUG, "event_sink_set");
        Ok(Status::Ok)
    };
    // SAFETY: the caller vouches for `error`.
    unsafe { guard::call(error, body) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ffi::CStr;

    #[derive(Default)]
    struct Heard {
        lines: Mutex<Vec<String>>,
        drops: Mutex<u32>,
        nested: Mutex<Option<Status>>,
    }

    unsafe extern "C-unwind" fn hear(user_data: *mut c_void, event: *const reclane_event) {
        // SAFETY: the test's own, alive until the sink is gone.
        let heard = unsafe { &*user_data.cast::<Heard>() };
        // SAFETY: valid during the callback.
        let event = unsafe { *event };
        // SAFETY: NUL-terminated, valid during the callback.
        let line = unsafe { CStr::from_ptr(event.line) }.to_str().unwrap().to_owned();
        assert_eq!(line.len() as u64, event.line_length);
        if line.contains("event=sink_test") {
            lock(&heard.lines).push(line);
            // SAFETY: NULL is allowed.
            *lock(&heard.nested) = Some(unsafe { reclane_set_event_sink(core::ptr::null(), core::ptr::null_mut()) });
        }
    }

    unsafe extern "C-unwind" fn dropped(user_data: *mut c_void) {
        // SAFETY: as above.
        *lock(unsafe { &(*user_data.cast::<Heard>()).drops }) += 1;
    }

    fn set(sink: *const reclane_event_sink) -> Status {
        // SAFETY: NULL, or a whole struct whose user_data outlives the sink.
        unsafe { reclane_set_event_sink(sink, core::ptr::null_mut()) }
    }

    #[test]
    fn a_sink_hears_events_and_its_user_data_is_dropped_once() {
        let (first, second) = (Heard::default(), Heard::default());
        let face = |heard: &Heard| reclane_event_sink {
            struct_size: 32,
            level: reclane_level::Warn as u32,
            user_data: core::ptr::from_ref(heard).cast_mut().cast::<c_void>(),
            drop_user_data: Some(dropped),
            on_event: Some(hear),
        };
        let refused = reclane_event_sink { on_event: None, ..face(&first) };
        assert_eq!(set(&raw const refused), Status::NullPointer);
        let refused = reclane_event_sink { level: 6, ..face(&first) };
        assert_eq!(set(&raw const refused), Status::InvalidArgument);
        assert_eq!(*lock(&first.drops), 0);

        assert_eq!(set(&face(&first)), Status::Ok);
        crate::event!(Level::WARN, "sink_test", shard = 3, story = "two words");
        crate::event!(Level::INFO, "sink_test", shard = 4);
        assert_eq!(set(&face(&second)), Status::Ok);
        // The first sink is gone, and had all that was reported until then.
        assert_eq!(*lock(&first.drops), 1);
        let lines = lock(&first.lines).clone();
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains("level=warn event=sink_test shard=3 story=\"two words\""), "{lines:?}");
        assert_eq!(*lock(&first.nested), Some(Status::WouldDeadlock));

        crate::event!(Level::ERROR, "sink_test", shard = 5);
        assert_eq!(set(core::ptr::null()), Status::Ok);
        assert_eq!((lock(&second.lines).len(), *lock(&second.drops)), (1, 1));
        assert_eq!(set(core::ptr::null()), Status::Ok);
    }
}
