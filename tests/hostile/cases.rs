//! Requests to break things with: a good one, of which one thing is then changed.

use super::attacker::{Attacker, EXTRA_BYTES, blank};
use super::bed::{Dice, spec};
use reclane::fabric::Region;
use reclane::ids::TableTag;
use reclane::rpc::Scheme;
use reclane::wire::payload::{Command, block_bytes};
use reclane::wire::{Op, RemoteBuffer, RequestHeader, RpcStatus, flags};

/// What the server must say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Zero.
    Good,
    /// Anything but zero.
    Bad,
    /// This status, by the order of judgement in docs/wire.md.
    Refused(RpcStatus),
    /// It depends on bytes that are changed meanwhile, or on what other requests did.
    Open,
}

#[derive(Clone, Debug)]
pub struct Case {
    pub name: &'static str,
    pub header: RequestHeader,
    pub payload: Vec<u8>,
    pub verdict: Verdict,
    /// Whether the checksum is to be right.
    pub summed: bool,
}

/// Tables that requests may name: the attacker's own two, and the one it must not be able to change.
#[derive(Clone, Copy)]
pub struct Tables {
    pub narrow: TableTag,
    pub wide: TableTag,
    pub victim: TableTag,
}

pub const NARROW_DIM: usize = 16;
pub const WIDE_DIM: usize = 300;

impl Tables {
    fn has(&self, table: u16) -> bool {
        [self.narrow, self.wide, self.victim].contains(&TableTag(table))
    }

    fn dim(&self, table: u16) -> usize {
        if table == self.wide.0 { WIDE_DIM } else { NARROW_DIM }
    }
}

fn keyed(op: u8) -> bool {
    matches!(op, 1 | 2 | 3 | 5)
}

fn writes(op: u8) -> bool {
    matches!(op, 2 | 3 | 5)
}

/// A request that the server must execute.
pub fn good(attacker: &Attacker, dice: &mut Dice, tables: &Tables) -> Case {
    let table = if dice.one_in(3) { tables.wide.0 } else { tables.narrow.0 };
    let row = tables.dim(table) * 4;
    let most = if row > 64 { 6 } else { 40 };
    let kind = dice.below(20);
    let op = match kind {
        0..=8 => Op::Get,
        9..=12 => Op::Put,
        13..=15 => Op::Update,
        16..=17 => Op::UpdateFlat,
        18 => Op::InitTable,
        _ => Op::Command,
    };
    if matches!(op, Op::InitTable | Op::Command) {
        return rare(attacker, dice, op);
    }
    let count = if dice.one_in(3) { 1 + dice.below(3) } else { 1 + dice.below(most) };
    let count = if op == Op::Get && row > 64 && dice.one_in(3) { 12 } else { count };
    let keys: Vec<u64> = (0..count).map(|_| dice.roll() % 1200).collect();
    let mut header = blank(op as u8, table, u32::try_from(count).expect("small"));
    header.sequence = dice.roll();
    let mut total = count * row;
    let named = dice.one_in(3);
    let indexed = named && op != Op::Get && dice.one_in(2);
    if named {
        let region = attacker.half.extra.address();
        let place = dice.below((EXTRA_BYTES - total) / 4) * 4;
        let bytes = u32::try_from(total).expect("small");
        header.set_remote_buffer(RemoteBuffer { address: region.iova + place as u64, rkey: region.rkey, bytes });
    }
    let mut payload = Vec::new();
    if op == Op::Get {
        header.response_bytes = u32::try_from(total).expect("small");
        header.flags |= [0, flags::DIRECT, flags::DIRECT | flags::PROGRESS, flags::COPY_ALLOWED][dice.below(4)];
        total = 0;
    }
    if op == Op::Update && !named {
        for key in &keys {
            payload.extend(key.to_le_bytes());
            payload.resize(payload.len() + row, 0x3f);
        }
        assert_eq!(payload.len(), count * block_bytes(u32::try_from(row).expect("small")));
    } else {
        if RequestHeader::keys_are_inline(header.flags, header.key_count) {
            header.set_inline_keys(&keys);
        } else {
            payload.extend(keys.iter().flat_map(|key| key.to_le_bytes()));
        }
        if !named {
            payload.resize(payload.len() + total, 0x3f);
        }
        if indexed {
            header.flags |= flags::INDEXED;
            payload.extend((0..count).flat_map(|_| u32::try_from(dice.below(count)).expect("small").to_le_bytes()));
        }
    }
    finish(attacker, dice, Case { name: "good", header, payload, verdict: Verdict::Good, summed: false })
}

fn rare(attacker: &Attacker, dice: &mut Dice, op: Op) -> Case {
    let header = blank(op as u8, 0, 0);
    let (payload, verdict) = if op == Op::InitTable {
        (spec("nrw", u32::try_from(NARROW_DIM).expect("small")).encode(), Verdict::Good)
    } else {
        // The server has no checkpoint directory, so these are refused after they were understood.
        let command = if dice.one_in(2) { Command::Save("x".into()) } else { Command::Load("../../x".into()) };
        (command.encode(), Verdict::Bad)
    };
    finish(attacker, dice, Case { name: "rare", header, payload, verdict, summed: false })
}

fn finish(attacker: &Attacker, dice: &mut Dice, mut case: Case) -> Case {
    case.header.payload_bytes = u32::try_from(case.payload.len()).expect("small");
    if dice.one_in(4) {
        case.header.flags |= flags::CHECKSUM;
    }
    case.summed = attacker.scheme == Scheme::Crc || case.header.flags & flags::CHECKSUM != 0;
    case
}

/// One thing of a good request changed.
pub fn mutated(attacker: &Attacker, dice: &mut Dice, tables: &Tables) -> Case {
    let mut case = good(attacker, dice, tables);
    match dice.below(15) {
        0 => change_op(&mut case, dice),
        1 => change_flags(attacker, &mut case, dice),
        2 => change_table(&mut case, dice, tables),
        3 => change_count(attacker, &mut case, dice),
        4 => change_payload_bytes(attacker, &mut case, dice),
        5 => change_response_bytes(&mut case, dice),
        6 => {
            case.name = "shard";
            case.header.shard = (dice.small() as u16).max(1);
            case.verdict = Verdict::Refused(RpcStatus::WrongShard);
        }
        7 => {
            case.name = "reserved";
            case.header.reserved = (dice.small() as u16).max(1);
            case.verdict = Verdict::Refused(RpcStatus::InvalidPayload);
        }
        8..=10 => change_buffer(attacker, &mut case, dice, tables),
        11 => change_checksum(attacker, &mut case, dice),
        12 => change_payload(&mut case, dice),
        13 => {
            case.name = "sequence";
            case.header.sequence = dice.roll();
        }
        _ => random_header(&mut case, dice),
    }
    tame(&mut case, dice, tables);
    case
}

fn change_op(case: &mut Case, dice: &mut Dice) {
    case.name = "op";
    case.header.op = if dice.one_in(2) { dice.small() as u8 } else { dice.below(8) as u8 };
    let unknown = Op::from_code(case.header.op).is_none();
    case.verdict = if unknown { Verdict::Refused(RpcStatus::InvalidPayload) } else { Verdict::Open };
}

fn change_flags(attacker: &Attacker, case: &mut Case, dice: &mut Dice) {
    case.name = "flags";
    case.header.flags = dice.small() as u8;
    if dice.one_in(2) {
        case.header.flags &= flags::KNOWN;
    }
    let known = case.header.flags & !flags::KNOWN == 0;
    case.verdict = if known { Verdict::Open } else { Verdict::Refused(RpcStatus::InvalidPayload) };
    case.summed = attacker.scheme == Scheme::Crc || case.header.flags & flags::CHECKSUM != 0;
}

fn change_table(case: &mut Case, dice: &mut Dice, tables: &Tables) {
    case.name = "table";
    case.header.table = dice.small() as u16;
    // See `tame` for what INIT_TABLEs may want.
    let unknown = case.header.table > 32_767 && !tables.has(case.header.table);
    if dice.one_in(4) && !writes(case.header.op) {
        case.header.table = tables.victim.0;
        case.verdict = Verdict::Open;
    } else if keyed(case.header.op) {
        case.verdict = if unknown { Verdict::Refused(RpcStatus::UnknownTable) } else { Verdict::Open };
    }
}

fn change_count(attacker: &Attacker, case: &mut Case, dice: &mut Dice) {
    case.name = "key_count";
    let before = case.header.key_count;
    case.header.key_count = dice.edge(before);
    if case.header.key_count > attacker.keys_max() {
        case.verdict = Verdict::Refused(RpcStatus::BatchTooLarge);
    } else if case.header.key_count != before {
        case.verdict = Verdict::Bad;
    }
}

fn change_payload_bytes(attacker: &Attacker, case: &mut Case, dice: &mut Dice) {
    case.name = "payload_bytes";
    let before = case.header.payload_bytes;
    case.header.payload_bytes = if dice.one_in(4) { 8192 + dice.edge(1) % 3 } else { dice.edge(before) };
    if case.header.payload_bytes as usize > attacker.payload_max() {
        case.verdict = Verdict::Refused(RpcStatus::BatchTooLarge);
    } else if case.header.payload_bytes != before {
        case.verdict = Verdict::Bad;
    }
}

fn change_response_bytes(case: &mut Case, dice: &mut Dice) {
    case.name = "response_bytes";
    let before = case.header.response_bytes;
    case.header.response_bytes = dice.edge(before);
    if case.header.op == Op::Get as u8 && case.header.response_bytes != before {
        case.verdict = Verdict::Refused(RpcStatus::ValueSizeMismatch);
    }
}

/// Names memory that is not there, not this client's, not large enough, or wraps around.
fn change_buffer(attacker: &Attacker, case: &mut Case, dice: &mut Dice, tables: &Tables) {
    case.name = "remote buffer";
    let (extra, responses) = (attacker.half.extra.address(), attacker.half.responses.address());
    let total = case.header.key_count as usize * tables.dim(case.header.table) * 4;
    let total = u32::try_from(total).expect("small");
    let mut buffer = RemoteBuffer { address: extra.iova, rkey: extra.rkey, bytes: total };
    match dice.below(9) {
        0 => buffer.address = dice.roll(),
        1 => buffer.address = 0_u64.wrapping_sub(u64::from(total) + dice.roll() % 4),
        2 => buffer.address = extra.iova + dice.roll() % 64,
        3 => buffer.address = extra.iova + extra.bytes - u64::from(total) + dice.roll() % 8,
        4 => buffer.address = extra.iova.wrapping_sub(4 * (1 + dice.roll() % 4)),
        5 => buffer.rkey = [attacker.server.rkey, dice.small(), 0, u32::MAX, responses.rkey][dice.below(5)],
        6 => buffer.address = [attacker.server.iova, responses.iova, 0][dice.below(3)],
        7 => buffer = RemoteBuffer { address: responses.iova, rkey: responses.rkey, bytes: total },
        _ => buffer.bytes = dice.edge(total),
    }
    let was_inline = RequestHeader::keys_are_inline(case.header.flags, case.header.key_count);
    let had_buffer = case.header.flags & flags::REMOTE_BUFFER != 0;
    let was_update = case.header.op == Op::Update as u8 && !had_buffer;
    case.header.set_remote_buffer(buffer);
    let is_inline = RequestHeader::keys_are_inline(case.header.flags, case.header.key_count);
    let region = [(extra, true), (responses, false)].into_iter().find(|(r, _)| r.rkey == buffer.rkey);
    let needed = if case.header.op == Op::Get as u8 { u64::from(total) } else { u64::from(buffer.bytes) };
    let fits = region.is_some_and(|(region, readable)| {
        let inside = buffer.address.checked_sub(region.iova);
        let inside = inside.and_then(|at| at.checked_add(needed)).is_some_and(|end| end <= region.bytes);
        inside && (readable || case.header.op == Op::Get as u8)
    });
    let sized = if case.header.op == Op::Get as u8 { buffer.bytes >= total } else { buffer.bytes == total };
    if was_update || case.header.flags & flags::INDEXED != 0 {
        case.verdict = Verdict::Open;
    } else if !keyed(case.header.op) || !fits || !sized || !buffer.address.is_multiple_of(4) {
        case.verdict = Verdict::Bad;
    } else if was_inline != is_inline || !had_buffer {
        case.verdict = Verdict::Open;
    }
}

/// Under `crc` a wrong sum means "not there yet", so there it is left to [`late`](super::attack::late).
fn change_checksum(attacker: &Attacker, case: &mut Case, dice: &mut Dice) {
    case.name = "checksum";
    if attacker.scheme != Scheme::Crc {
        case.header.flags |= flags::CHECKSUM;
        // Every value is wrong but one of 2^32; that one would be a false alarm with a seed that shows it.
        case.header.checksum = dice.small();
        case.summed = false;
        case.verdict = Verdict::Refused(RpcStatus::InvalidPayload);
    }
}

fn change_payload(case: &mut Case, dice: &mut Dice) {
    case.name = "payload";
    if case.payload.is_empty() {
        return;
    }
    let first = dice.below(case.payload.len());
    let count = if dice.one_in(2) { 1 } else { (1 + dice.below(16)).min(case.payload.len() - first) };
    dice.fill(&mut case.payload[first..first + count]);
    let judged = case.header.op == Op::InitTable as u8 || case.header.flags & flags::INDEXED != 0;
    if case.verdict == Verdict::Good && judged {
        case.verdict = Verdict::Open;
    }
}

fn random_header(case: &mut Case, dice: &mut Dice) {
    case.name = "random header";
    let mut bytes = [0; 64];
    dice.fill(&mut bytes);
    let random = RequestHeader::from_bytes(&bytes);
    let kept = case.header;
    case.header = random;
    case.header.checksum = 0;
    // Random all over ends at the first check; some of it left as it was gets further.
    if dice.one_in(2) {
        case.header.flags = kept.flags;
        case.header.op = kept.op;
        case.header.reserved = 0;
        case.header.shard = 0;
    }
    if dice.one_in(2) {
        case.header.key_count = kept.key_count;
        case.header.table = kept.table;
    }
    let h = &case.header;
    let broken = Op::from_code(h.op).is_none() || h.flags & !flags::KNOWN != 0 || h.reserved != 0 || h.shard != 0;
    case.verdict = if broken { Verdict::Bad } else { Verdict::Open };
    case.summed = case.summed || h.flags & flags::CHECKSUM != 0;
}

/// Takes back what a client may do and the test must not: write to the other's table, take tags at will, or clear all
/// tables.
fn tame(case: &mut Case, dice: &mut Dice, tables: &Tables) {
    if writes(case.header.op) && case.header.table == tables.victim.0 {
        case.header.table = u16::MAX - (dice.below(9) as u16);
        case.verdict = Verdict::Bad;
    }
    // Wanted tags up to 32767 only, so that the others are known not to be there.
    if case.header.op == Op::InitTable as u8 && case.payload.len() > 33 {
        case.payload[33] &= 0x7f;
    }
    if case.header.op == Op::Command as u8 && case.header.payload_bytes == 4 {
        case.header.payload_bytes = 3;
        case.verdict = Verdict::Bad;
    }
}
