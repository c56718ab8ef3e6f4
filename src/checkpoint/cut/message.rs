//! What coordinator, participants and those who ask for checkpoints say to each other: letters of the control plane, each
//! with its own checksum.

#![forbid(unsafe_code)]

use crate::checkpoint::format::{Reader, put_u16, put_u32, put_u64, put_u128};

/// Most bytes of a reason; longer ones are cut.
pub const REASON_BYTES_MAX: usize = 1024;
/// Most earlier epochs that a file may build on.
const NEEDS_MAX: usize = 4096;
const MAGIC: u16 = 0x4b43;
/// Most bytes of an application section in a request.
pub const APP_BYTES_MAX: usize = 32 << 10;
/// Most bytes of a section's name.
const NAME_BYTES_MAX: usize = 255;

/// The numbers that PREPARE carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Order {
    /// Epoch of the attempt.
    pub epoch: u64,
    /// Random name of the checkpoint.
    pub checkpoint: u128,
    /// The checkpoint that an incremental one may build on; 0: none, everything is written.
    pub parent: u64,
    /// How long a gate may stay shut.
    pub hold_ms: u64,
    /// How long writing may take.
    pub write_ms: u64,
}

/// What the coordinator says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    /// Shut the gate, let what is under way end, say HELD.
    Prepare(Order),
    /// All are held: copy, say CAPTURED.
    Cut,
    /// All have copied: open the gate, write, say DURABLE.
    Resume,
    /// It exists.
    Commit,
    /// It will not.
    Abort(String),
}

/// A file that is durable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WrittenFile {
    /// Its length.
    pub bytes: u64,
    /// Bytes of state in it and in earlier files.
    pub state_bytes: u64,
    /// Bytes of state in it.
    pub own_bytes: u64,
    /// Its digest.
    pub digest: [u8; 32],
    /// Earlier epochs that it builds on.
    pub needs: Vec<u64>,
}

/// What a participant says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Report {
    /// Its gate is shut and nothing is under way.
    Held,
    /// It has copied; nanoseconds.
    Captured(u64),
    /// Its file is on the disk.
    Durable(WrittenFile),
    /// It cannot; the attempt is over.
    Failed(String),
}

/// Who wants a checkpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// The asker's own number for it.
    pub number: u64,
    /// Whether everything is written, changed or not.
    pub full: bool,
    /// Application section: name and bytes.
    pub section: Option<(String, Vec<u8>)>,
}

/// How far a checkpoint is.
#[repr(u8)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum State {
    /// Asked for.
    Asked = 0,
    /// Gates are shutting.
    Holding = 1,
    /// State is being copied.
    Capturing = 2,
    /// Work goes on; files are being written.
    Writing = 3,
    /// It exists.
    Committed = 4,
    /// It came to nothing.
    Aborted = 5,
}

impl State {
    /// As C has it behind `RECLANE_CHECKPOINT_STATE_`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            State::Asked => "ASKED",
            State::Holding => "HOLDING",
            State::Capturing => "CAPTURING",
            State::Writing => "WRITING",
            State::Committed => "COMMITTED",
            State::Aborted => "ABORTED",
        }
    }
}

/// What the asker is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Note {
    /// Of the request.
    pub number: u64,
    /// Epoch; 0 while there is none.
    pub epoch: u64,
    /// How far it is.
    pub state: State,
    /// How long gates were shut, so far as it is known.
    pub hold_ns: u64,
    /// From the first word to the last.
    pub total_ns: u64,
    /// Bytes of state.
    pub state_bytes: u64,
    /// Bytes that were written.
    pub written_bytes: u64,
    /// Why it came to nothing.
    pub why: String,
}

/// A letter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// To a participant, about an epoch.
    Command(u64, Command),
    /// To the coordinator, about an epoch.
    Report(u64, Report),
    /// To the coordinator.
    Ask(Request),
    /// To the coordinator: as soon as every participant has said so too.
    Together(Request),
    /// To the coordinator: give up what is under way.
    Stop(u64),
    /// To the asker.
    Note(Note),
}

/// A reason, not too long.
fn put_reason(out: &mut Vec<u8>, reason: &str) {
    let end = (0..=reason.len().min(REASON_BYTES_MAX)).rev().find(|end| reason.is_char_boundary(*end)).unwrap_or(0);
    put_u16(out, u16::try_from(end).unwrap_or(0));
    out.extend_from_slice(&reason.as_bytes()[..end]);
}

impl Message {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_u16(&mut out, MAGIC);
        match self {
            Message::Command(epoch, command) => encode_command(&mut out, *epoch, command),
            Message::Report(epoch, report) => encode_report(&mut out, *epoch, report),
            Message::Ask(request) | Message::Together(request) => {
                out.push(if matches!(self, Message::Ask(_)) { 20 } else { 23 });
                put_u64(&mut out, request.number);
                out.push(u8::from(request.full));
                let (name, bytes) = request.section.as_ref().map_or(("", &[][..]), |(name, bytes)| (name, bytes));
                out.push(u8::from(request.section.is_some()));
                put_reason(&mut out, name);
                put_u32(&mut out, u32::try_from(bytes.len()).unwrap_or(u32::MAX));
                out.extend_from_slice(bytes);
            }
            Message::Stop(number) => {
                out.push(21);
                put_u64(&mut out, *number);
            }
            Message::Note(note) => {
                out.push(22);
                for value in
                    [note.number, note.epoch, note.hold_ns, note.total_ns, note.state_bytes, note.written_bytes]
                {
                    put_u64(&mut out, value);
                }
                out.push(note.state as u8);
                put_reason(&mut out, &note.why);
            }
        }
        let crc = crc32c::crc32c(&out);
        put_u32(&mut out, crc);
        out
    }

    /// A letter; None when it is none, or damaged.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Message> {
        let (body, crc) = bytes.split_at_checked(bytes.len().checked_sub(4)?)?;
        if crc32c::crc32c(body).to_le_bytes() != *crc {
            return None;
        }
        let mut r = Reader(body);
        if r.u16()? != MAGIC {
            return None;
        }
        let kind = u8::from_le_bytes(r.array()?);
        let message = match kind {
            1..=5 => decode_command(kind, &mut r)?,
            10..=13 => decode_report(kind, &mut r)?,
            20 | 23 => {
                let (number, full, has) = (r.u64()?, r.array::<1>()?[0] != 0, r.array::<1>()?[0] != 0);
                let name = r.text(NAME_BYTES_MAX)?;
                let count = r.count(1)?;
                let bytes = r.take(count)?.to_vec();
                let request = Request { number, full, section: has.then_some((name, bytes)) };
                if kind == 20 { Message::Ask(request) } else { Message::Together(request) }
            }
            21 => Message::Stop(r.u64()?),
            22 => decode_note(&mut r)?,
            _ => return None,
        };
        r.is_empty().then_some(message)
    }
}

fn encode_command(out: &mut Vec<u8>, epoch: u64, command: &Command) {
    let kind = match command {
        Command::Prepare(_) => 1,
        Command::Cut => 2,
        Command::Resume => 3,
        Command::Commit => 4,
        Command::Abort(_) => 5,
    };
    out.push(kind);
    put_u64(out, epoch);
    match command {
        Command::Prepare(order) => {
            put_u128(out, order.checkpoint);
            put_u64(out, order.parent);
            put_u64(out, order.hold_ms);
            put_u64(out, order.write_ms);
        }
        Command::Abort(why) => put_reason(out, why),
        Command::Cut | Command::Resume | Command::Commit => {}
    }
}

fn decode_command(kind: u8, r: &mut Reader<'_>) -> Option<Message> {
    let epoch = r.u64()?;
    let command = match kind {
        1 => {
            let (checkpoint, parent) = (r.u128()?, r.u64()?);
            Command::Prepare(Order { epoch, checkpoint, parent, hold_ms: r.u64()?, write_ms: r.u64()? })
        }
        2 => Command::Cut,
        3 => Command::Resume,
        4 => Command::Commit,
        _ => Command::Abort(r.text(REASON_BYTES_MAX)?),
    };
    Some(Message::Command(epoch, command))
}

fn encode_report(out: &mut Vec<u8>, epoch: u64, report: &Report) {
    let kind = match report {
        Report::Held => 10,
        Report::Captured(_) => 11,
        Report::Durable(_) => 12,
        Report::Failed(_) => 13,
    };
    out.push(kind);
    put_u64(out, epoch);
    match report {
        Report::Held => {}
        Report::Captured(ns) => put_u64(out, *ns),
        Report::Durable(file) => {
            put_u64(out, file.bytes);
            put_u64(out, file.state_bytes);
            put_u64(out, file.own_bytes);
            out.extend_from_slice(&file.digest);
            put_u32(out, u32::try_from(file.needs.len()).unwrap_or(u32::MAX));
            file.needs.iter().for_each(|need| put_u64(out, *need));
        }
        Report::Failed(why) => put_reason(out, why),
    }
}

fn decode_report(kind: u8, r: &mut Reader<'_>) -> Option<Message> {
    let epoch = r.u64()?;
    let report = match kind {
        10 => Report::Held,
        11 => Report::Captured(r.u64()?),
        12 => {
            let (bytes, state_bytes, own_bytes, digest) = (r.u64()?, r.u64()?, r.u64()?, r.array()?);
            let count = r.count(8).filter(|count| *count <= NEEDS_MAX)?;
            let needs = (0..count).map(|_| r.u64()).collect::<Option<Vec<u64>>>()?;
            Report::Durable(WrittenFile { bytes, state_bytes, own_bytes, digest, needs })
        }
        _ => Report::Failed(r.text(REASON_BYTES_MAX)?),
    };
    Some(Message::Report(epoch, report))
}

fn decode_note(r: &mut Reader<'_>) -> Option<Message> {
    let (number, epoch, hold_ns) = (r.u64()?, r.u64()?, r.u64()?);
    let (total_ns, state_bytes, written_bytes) = (r.u64()?, r.u64()?, r.u64()?);
    let state = match r.array::<1>()?[0] {
        0 => State::Asked,
        1 => State::Holding,
        2 => State::Capturing,
        3 => State::Writing,
        4 => State::Committed,
        5 => State::Aborted,
        _ => return None,
    };
    let why = r.text(REASON_BYTES_MAX)?;
    Some(Message::Note(Note { number, epoch, state, hold_ns, total_ns, state_bytes, written_bytes, why }))
}
