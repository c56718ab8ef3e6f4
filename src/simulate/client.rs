//! A client's process: joins, connects, then asks and checks what it is told, one step at a time.

use super::history::{End, History, Kind};
use super::join::{self, Care};
use super::ledger::{DIM, Ledger, ROW_BYTES, Row, TABLE_TAG, read_row, row, table_spec};
use super::member::Membership;
use super::wires::Wires;
use crate::control::{Event, Health, Peer};
use crate::engine::client::mend::policy;
use crate::engine::client::offered::{Met, Offered};
use crate::engine::client::reach::Buffers;
use crate::error::{Error, Outcome, Status};
use crate::fabric::sim::{Mutant, Rng, Sim, SimRegion, mutated};
use crate::fabric::{Access, Fabric, Qp, Region};
use crate::ids::{Incarnation, ShardId, TableTag};
use crate::lane::{DirtyReason, LaneState};
use crate::options::{HashMethod, RequestRetry, Settings};
use crate::ps::client::{PsClient, PsClientOptions, Request, Rows, Target, Token};
use crate::ps::routing::Router;
use crate::rpc::{Bell, Channel, PacePolicy};
use crate::sync::{Arc, lock};
use crate::wire::{Op, flags};
use core::time::Duration;

/// A request under way. What it points to stays where it is until it is over.
#[derive(Debug)]
struct Under {
    number: u64,
    kind: Kind,
    token: Token,
    keys: Vec<u64>,
    rows: Vec<Row>,
    /// Where the shard writes the rows of a `GetInto`.
    buffer: Option<SimRegion>,
    /// Of each key: the life of its shard, and the updates that were acknowledged before.
    floor: Vec<(u32, u32)>,
    began: u64,
    /// Time that the process was stopped meanwhile.
    stopped: u64,
}

#[derive(Debug)]
enum Stage {
    /// Waits for the deployment.
    Joining {
        asked: bool,
    },
    /// Has offered lanes.
    Offered {
        ends: Vec<Option<Offered<Sim>>>,
        channels: Vec<Option<Met<Sim>>>,
        bell: Arc<Bell>,
        ask_at: Vec<u64>,
        since: u64,
    },
    Running {
        care: Box<Care>,
        ps: Box<PsClient<Sim>>,
    },
    /// Could not come up; the process is to be started anew.
    Failed,
}

/// What all clients know.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) history: Arc<History>,
    pub(super) settings: Settings,
    /// The present life of each shard.
    pub(super) ledgers: Vec<Arc<Ledger>>,
    /// Updates of each key that were acknowledged in the present life of its shard.
    pub(super) acknowledged: std::collections::BTreeMap<u64, u32>,
    pub(super) keys: u64,
    pub(super) wait_timeout: Duration,
    /// Everything is whole: no request may fail.
    pub(super) strict: bool,
    /// Nothing new is asked any more.
    pub(super) closing: bool,
    /// Longest time that a request may take, for the checker.
    pub(super) deadline_ns: u64,
}

impl Common {
    /// After the faults, and once all is whole, requests are executed. Slots may be short all the same, also for parts of
    /// a batch, which later requests may overtake.
    fn must_not_fail(&self, number: u64, error: &Error) {
        let short = error.status == Status::NoSlot || error.message.contains("no idle slot");
        if self.strict && !short {
            self.history.violation(format!("request {number} failed though everything was whole: {error}"));
        }
    }
}

/// One life of one client.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) member: Membership,
    under: Vec<Under>,
    stage: Stage,
    depth: usize,
    /// All buffers: a rebuilt lane's peer must reach them too.
    buffers: Buffers<Sim>,
    /// Those of them that no request has, or may still be written to by a late shard.
    free: Vec<SimRegion>,
    /// Last, so that lanes go before the fabric that made them.
    pub(super) fabric: Sim,
}

const ASK_AGAIN_NS: u64 = 300_000;
const GIVE_UP_NS: u64 = 20_000_000;
const KEYS_MAX: u64 = 5;

impl Client {
    pub(super) fn new(fabric: Sim, member: Membership, depth: usize) -> Client {
        Client {
            member,
            under: Vec::new(),
            stage: Stage::Joining { asked: false },
            depth,
            buffers: Buffers::<Sim>::default(),
            free: Vec::new(),
            fabric,
        }
    }

    pub(super) fn ps(&self) -> Option<&PsClient<Sim>> {
        match &self.stage {
            Stage::Running { ps, .. } => Some(ps),
            _ => None,
        }
    }

    /// Slots that are held: by requests, and by probes of idle lanes.
    pub(super) fn slots_held(&self) -> usize {
        self.ps().map_or(0, PsClient::under_way)
    }

    pub(super) fn failed(&self) -> bool {
        matches!(self.stage, Stage::Failed)
    }

    pub(super) fn under_way(&self) -> usize {
        self.under.len()
    }

    /// Numbers of the requests that are under way.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u64> {
        self.under.iter().map(|under| under.number)
    }

    /// The process was stopped for so long.
    pub(super) fn was_stopped(&mut self, ns: u64) {
        self.under.iter_mut().for_each(|under| under.stopped += ns);
    }

    /// The process dies: what it asked is nobody's any more.
    pub(super) fn orphan(&mut self, history: &History) {
        if let Stage::Running { care, ps } = &mut self.stage {
            care.close(ps);
        }
        for under in self.under.drain(..) {
            history.end(under.number, End::Orphaned);
        }
    }

    /// True if there was something to do.
    pub(super) fn step(
        &mut self,
        now: u64,
        plane: Option<u32>,
        wires: &mut Wires,
        rng: &mut Rng,
        common: &mut Common,
    ) -> bool {
        self.member.step(now, plane, wires);
        self.hear(now, wires);
        if !matches!(self.stage, Stage::Running { .. }) {
            self.come_up(now, wires, common);
            return true;
        }
        self.look(now, common);
        if !common.closing && self.under.len() < self.depth && rng.chance(600_000) {
            self.ask(now, rng, common);
        }
        !self.under.is_empty()
    }

    /// Hears the control plane's verdicts and looks after lanes, as the engine's threads do.
    fn hear(&mut self, now: u64, wires: &mut Wires) {
        while let Some(event) = self.member.events.pop_front() {
            match &mut self.stage {
                Stage::Running { care, ps } => {
                    if let Event::LanesPublished { from: from @ Peer::Server(_), incarnation } = event {
                        self.member.ask_lanes(now, from, incarnation, wires);
                    }
                    care.hear(event, ps);
                }
                Stage::Offered { .. } if matches!(event, Event::MemberLeft { peer: Peer::Server(_), .. }) => {
                    self.stage = Stage::Failed;
                }
                _ => {}
            }
        }
        let Stage::Running { care, ps } = &mut self.stage else { return };
        while let Some((from, _, bytes)) = self.member.offers.pop_front() {
            if let Peer::Server(shard) = from {
                care.fetched(shard.0, bytes, ps);
            }
        }
        for shard in ps.take_concerns() {
            self.member.ask_health(now, ShardId(shard), wires);
        }
        while let Some(report) = self.member.reports.pop_front() {
            if report.known && report.health == Health::Dead {
                let all = 0..ps.channels().len() as u32;
                all.for_each(|shard| join::fail(ps, ShardId(shard), report.incarnation, DirtyReason::NodeVerdict));
            }
        }
        let offers = care.step(&self.fabric, ps, &self.buffers);
        join::publish(&mut self.member, now, offers, wires);
    }

    fn come_up(&mut self, now: u64, wires: &mut Wires, common: &Common) {
        let shards = common.settings.num_shards;
        match &mut self.stage {
            Stage::Joining { asked } => {
                if self.member.is_refused {
                    // A shard is leaving: opening a client fails then.
                    self.stage = Stage::Failed;
                } else if !self.member.is_joined() {
                    *asked = false;
                } else if !*asked {
                    *asked = true;
                    self.member.ask_ready(now, wires);
                } else if self.member.all_ready {
                    self.offer(now, wires, common);
                }
            }
            Stage::Offered { ask_at, channels, since, .. } => {
                if now.saturating_sub(*since) > GIVE_UP_NS {
                    self.stage = Stage::Failed;
                    return;
                }
                for shard in 0..shards {
                    let at = &mut ask_at[shard as usize];
                    if channels[shard as usize].is_none() && now >= *at {
                        *at = u64::MAX;
                        self.member.ask_lanes(now, Peer::Server(ShardId(shard)), Incarnation(0), wires);
                    }
                }
                self.take_answers(now, wires, common);
            }
            Stage::Running { .. } | Stage::Failed => {}
        }
    }

    fn offer(&mut self, now: u64, wires: &mut Wires, common: &Common) {
        let shards = common.settings.num_shards;
        let mut ends = Vec::new();
        for shard in 0..shards {
            let Ok(offered) = Offered::make(&self.fabric, &common.settings, self.member.incarnation) else {
                self.stage = Stage::Failed;
                return;
            };
            self.member.publish(now, Peer::Server(ShardId(shard)), offered.encode(), wires);
            ends.push(Some(offered));
        }
        let channels = (0..shards).map(|_| None).collect();
        let bell = Arc::new(Bell::default());
        self.stage = Stage::Offered { ends, channels, bell, ask_at: vec![now; shards as usize], since: now };
    }

    fn take_answers(&mut self, now: u64, wires: &mut Wires, common: &Common) {
        let me = self.member.incarnation;
        let Stage::Offered { ends, channels, ask_at, bell, .. } = &mut self.stage else { return };
        let mut echoes = Vec::new();
        let mut broken = false;
        while let Some((from, _, bytes)) = self.member.offers.pop_front() {
            let Peer::Server(shard) = from else { continue };
            let place = shard.0 as usize;
            let Some(answer) = join::answer_in(&bytes, &common.settings, me) else {
                // Meant for an earlier process of our number.
                ask_at[place] = now + ASK_AGAIN_NS;
                continue;
            };
            let Some(offered) = ends[place].take() else { continue };
            match offered.connect(&self.fabric, shard.0, &common.settings, &answer, bell, join::soon()) {
                Ok(mut met) => {
                    echoes.push((shard.0, core::mem::take(&mut met.echo)));
                    channels[place] = Some(met);
                }
                Err(_) => broken = true,
            }
        }
        join::publish(&mut self.member, now, echoes, wires);
        if broken {
            self.stage = Stage::Failed;
        } else if channels.iter().all(Option::is_some) {
            let connected = core::mem::take(channels).into_iter().flatten();
            let (channels, shards): (Vec<_>, Vec<_>) = connected.map(|met| (met.channel, met.mend)).unzip();
            let router = Router::new(HashMethod::CityHash, common.settings.num_shards);
            let care = Care::new(&common.settings, me, shards);
            let ps = PsClient::new(channels, router, options(common, me));
            self.stage = Stage::Running { care: Box::new(care), ps: Box::new(ps) };
        }
    }

    /// Looks at what is under way.
    fn look(&mut self, now: u64, common: &mut Common) {
        let Stage::Running { ps, .. } = &self.stage else { return };
        let mut at = 0;
        while at < self.under.len() {
            let age = now.saturating_sub(self.under[at].began + self.under[at].stopped);
            if !matches!(ps.query(self.under[at].token), Ok(true)) {
                if age > common.deadline_ns {
                    common.history.violation(format!("request {} outlived its deadline", self.under[at].number));
                }
                at += 1;
                continue;
            }
            let mut under = self.under.swap_remove(at);
            let outcome = ps.wait(under.token, Some(Duration::ZERO));
            let mut told = vec![Outcome::Unknown; under.keys.len()];
            if ps.key_outcomes(under.token, &mut told).is_err() {
                common.history.violation(format!("request {} has ended and does not say how", under.number));
            }
            let tag = ps.answer_of(under.token).0;
            if !mutated::<Sim>(Mutant::SlotNotReleased) && ps.revoke(under.token).is_err() {
                common.history.violation(format!("request {} lost its token", under.number));
            }
            match outcome {
                Ok(()) => {
                    if let Some(buffer) = under.buffer.take() {
                        under.read_buffer(&buffer);
                        self.free.push(buffer);
                    }
                    under.check(tag, common);
                    common.history.end(under.number, End::Acknowledged);
                }
                Err(error) => {
                    if matches!(error.status, Status::Bug | Status::Pending | Status::CorruptResponse) {
                        common.history.violation(format!("request {} failed with {error}", under.number));
                    }
                    common.must_not_fail(under.number, &error);
                    common.history.failed(under.number, error.outcome, told);
                }
            }
        }
    }

    fn ask(&mut self, now: u64, rng: &mut Rng, common: &Common) {
        let Stage::Running { ps, .. } = &self.stage else { return };
        let kind = match rng.below(40) {
            0..16 => Kind::Get,
            16..20 => Kind::GetInto,
            20..25 => Kind::Put,
            25..39 => Kind::Update,
            _ => Kind::Init,
        };
        let mut keys: Vec<u64> = (0..rng.between(1, KEYS_MAX)).map(|_| rng.below(common.keys)).collect();
        keys.sort_unstable();
        keys.dedup();
        let shard = rng.index(ps.channels().len());
        if kind == Kind::Init {
            keys.clear();
        }
        let buffer = (kind == Kind::GetInto).then(|| self.take_buffer()).flatten();
        let Stage::Running { ps, .. } = &self.stage else { return };
        let number = common.history.ask(kind, &keys);
        let life = |shard: usize| common.ledgers[shard].life;
        let mut floor: Vec<(u32, u32)> = keys
            .iter()
            .map(|key| (life(ps.shard_of(*key) as usize), common.acknowledged.get(key).copied().unwrap_or(0)))
            .collect();
        if kind == Kind::Init {
            floor.push((life(shard), shard as u32));
        }
        let mut rows: Vec<Row> = match kind.writes() {
            true => keys.iter().map(|key| row(number, *key)).collect(),
            false => vec![[0; DIM]; keys.len()],
        };
        let outcome = if kind == Kind::Init {
            ps.submit_bytes(shard, Op::InitTable, &table_spec().encode_init(TABLE_TAG.0))
        } else {
            // SAFETY: keys, rows and buffer move into `under` with their memory where it is, and stay until the request
            // is over.
            unsafe { submit(ps, kind, rng.chance(500_000), &keys, &mut rows, buffer.as_ref()) }
        };
        match outcome {
            Ok(token) => {
                self.under.push(Under { number, kind, token, keys, rows, buffer, floor, began: now, stopped: 0 });
            }
            Err(error) => {
                self.free.extend(buffer);
                common.must_not_fail(number, &error);
                common.history.failed(number, error.outcome, Vec::new());
            }
        }
    }

    /// A buffer that every shard can reach. One of a request that failed is not taken again: a late shard may write there.
    fn take_buffer(&mut self) -> Option<SimRegion> {
        if let Some(free) = self.free.pop() {
            return Some(free);
        }
        let Stage::Running { ps, .. } = &self.stage else { return None };
        let region = self.fabric.allocate(KEYS_MAX as usize * ROW_BYTES, Access::ALL).ok()?;
        for lane in ps.channels().iter().flat_map(Channel::lanes) {
            // One that is down gets it when it is rebuilt.
            let _ = lane.connection().map(|connection| connection.parts().qp.expose(&region, Duration::ZERO));
        }
        lock(&self.buffers).push(region.clone());
        Some(region)
    }

    /// Lanes that carry requests, and all that were ever connected.
    pub(super) fn lanes(&self) -> (usize, usize) {
        let Some(ps) = self.ps() else { return (0, 0) };
        let lanes = || ps.channels().iter().flat_map(Channel::lanes);
        (
            lanes().filter(|lane| lane.state() == LaneState::Active).count(),
            lanes().filter(|lane| !lane.is_fresh()).count(),
        )
    }
}

/// # Safety
/// Keys, rows and buffer stay where they are until the request is over.
unsafe fn submit(
    ps: &PsClient<Sim>,
    kind: Kind,
    flat: bool,
    keys: &[u64],
    rows: &mut [Row],
    buffer: Option<&SimRegion>,
) -> crate::error::Result<Token> {
    let table = TableTag(0);
    let floats = rows.len() * DIM;
    let memory: Rows<'_, SimRegion> = Rows::Flat { rows: rows.as_ptr().cast(), count: floats };
    let request = match (kind, buffer) {
        (Kind::Put, _) => Request::Put { table, keys, rows: memory },
        (Kind::Update, _) if flat => Request::UpdateFlat { table, keys, gradients: memory },
        (Kind::Update, _) => Request::Update { table, keys, gradients: memory },
        (_, Some(region)) => Request::Get { table, keys, target: Target::Buffer { region, offset_bytes: 0 } },
        (_, None) => {
            Request::Get { table, keys, target: Target::Memory { rows: rows.as_mut_ptr().cast(), capacity: floats } }
        }
    };
    // SAFETY: as the caller vouches.
    unsafe { ps.submit(&request) }
}

fn options(common: &Common, incarnation: Incarnation) -> PsClientOptions {
    let settings = &common.settings;
    PsClientOptions {
        keys_max: 64,
        get_flags: flags::DIRECT | flags::COPY_ALLOWED,
        put_read: false,
        pace: PacePolicy { spins: 0, yields: 0, sleep: Duration::from_micros(50) },
        growth: Duration::ZERO,
        wait_timeout: common.wait_timeout,
        default_dim: DIM as u32,
        retry: settings.request_retry == RequestRetry::ExactlyOnce,
        rebuild: policy(settings, incarnation),
        health_after: Duration::from_millis(settings.health_probe_after_ms),
        health_every: Duration::from_millis(settings.health_probe_interval_ms),
    }
}

impl Under {
    /// Takes the rows out of the buffer that they were written to.
    fn read_buffer(&mut self, buffer: &SimRegion) {
        for (index, row) in self.rows.iter_mut().enumerate() {
            // SAFETY: the buffer has room for a row of each key; the simulated devices stand still meanwhile.
            *row = unsafe { buffer.base().as_ptr().add(index * ROW_BYTES).cast::<Row>().read_unaligned() };
        }
    }

    /// An acknowledged request must have happened, and must say what is so.
    fn check(&self, tag: u32, common: &mut Common) {
        if self.kind == Kind::Init {
            for (life, shard) in &self.floor {
                let ledger = &common.ledgers[*shard as usize];
                if tag != u32::from(TABLE_TAG.0) || (ledger.life == *life && ledger.tables() == 0) {
                    common.history.violation(format!("INIT_TABLE {} was acknowledged and not done", self.number));
                }
            }
        }
        const { assert!(ROW_BYTES == size_of::<Row>()) };
        let router = Router::new(HashMethod::CityHash, common.settings.num_shards);
        for ((key, found), (life, floor)) in self.keys.iter().zip(&self.rows).zip(&self.floor) {
            let ledger = &common.ledgers[router.shard_of(*key) as usize];
            let number = self.number;
            if self.kind.writes() {
                if ledger.life == *life {
                    if ledger.applied(number, *key) != 1 {
                        let what = format!("update {number} was acknowledged, and applied to key {key} not once");
                        common.history.violation(what);
                    }
                    *common.acknowledged.entry(*key).or_default() += 1;
                }
                continue;
            }
            match read_row(found) {
                None => common.history.violation(format!("GET {number} brought a torn row for key {key}")),
                Some((of, _)) if of != *key => {
                    common.history.violation(format!("GET {number} brought the row of key {of} for key {key}"));
                }
                Some((_, stamp)) => {
                    let (lived, version) = ((stamp >> 32) as u32, stamp as u32);
                    if lived == ledger.life && (version > ledger.version(*key) || (lived == *life && version < *floor))
                    {
                        common.history.violation(format!(
                            "GET {number} saw version {version} of key {key}; {floor} were acknowledged before, and {} \
                             are there",
                            ledger.version(*key)
                        ));
                    }
                }
            }
        }
    }
}
