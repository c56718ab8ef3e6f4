//! Rebuilds a client's lanes, one step at a time.
//!
//! [`Mender::step`] looks at every lane once, does what its [`Lifecycle`](crate::lane::Lifecycle) wants and what has come
//! in meanwhile, and says when to be called again. It keeps no thread, and reads no clock. What it says to shards and
//! hears from them goes over a [`Board`]; only the calls of the board and of the fabric may block, as long as those do.

use super::super::connect::{Completions, End, EndOf, decode_offer, placement};
use super::reach::{Buffers, Reach};
use crate::error::{Error, Result, Status};
use crate::fabric::{Fabric, Qp};
use crate::ids::Incarnation;
use crate::lane::{DirtyReason, LaneEnd, LaneOffer, RebuildPolicy, Want};
use crate::options::{Settings, SharedReads};
use crate::rpc::{Channel, ClientLaneParts, Connection, Placement, Probe, Scheme, Witness};
use crate::sync::{Arc, lock};
use crate::time::{Tick, now};
use core::time::Duration;
use std::collections::BTreeMap;

/// How a client and its shards leave each other their offers.
pub(crate) trait Board {
    /// Lets a shard see this client's offer, instead of the last one.
    ///
    /// # Errors
    /// It could not be left.
    fn publish(&self, shard: u32, offer: Vec<u8>) -> Result<()>;

    /// The shard's present offer to this client.
    ///
    /// # Errors
    /// There is none, or it could not be read.
    fn read(&self, shard: u32) -> Result<Vec<u8>>;
}

/// What the mender is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum News {
    /// The shard has published.
    Answered(u32),
    /// A process serves the shard, another one or again.
    Up(u32),
    /// The shard's process is heard of again.
    Heard(u32),
    /// The shard's process is gone or silent: no attempt before it is up.
    Down(u32),
    /// The board cannot be reached, or can again.
    Board(bool),
}

/// With a silent shard an attempt is made all the same after this time: news can be lost.
const HOLD_MAX: Duration = Duration::from_secs(2);
/// How often a probe's answer is looked for.
const PROBE_LOOK: Duration = Duration::from_micros(200);

/// A new connection on its way.
#[derive(Debug)]
struct Attempt<F: Fabric> {
    generation: u32,
    began: Tick,
    deadline: Tick,
    stage: Stage<F>,
}

#[derive(Debug)]
enum Stage<F: Fabric> {
    /// Offered to the shard.
    Offered { qp: F::Qp, slots: F::Region, staging: Option<F::Region>, here: Placement, reach: Reach<F> },
    /// Connected; the probe is under way. The shard's own number of the connection is to be echoed.
    Probing { connection: Box<Connection<F>>, echo: u32, reach: Reach<F> },
    /// Over, one way or the other.
    Over,
}

/// What is known of one shard.
#[derive(Debug)]
pub(crate) struct ShardMend<F: Fabric> {
    /// This side's offer, as it was or will be published.
    pub(crate) own: LaneOffer,
    /// Completions of the lanes to this shard.
    pub(crate) cqs: (Arc<F::Cq>, Arc<F::Cq>),
    /// The process whose lanes are in use.
    pub(crate) server: Incarnation,
    attempts: BTreeMap<u32, Attempt<F>>,
    answered: bool,
    /// Until when no attempt is made.
    held: Option<Tick>,
    /// The shard does not know the present offer: an echo is missing, or it is another process than it was left for.
    publish_due: bool,
    probe: Option<(Probe, Tick)>,
    next_probe: Tick,
    probe_lane: u32,
}

impl<F: Fabric> ShardMend<F> {
    /// For lanes that were connected just now.
    pub(crate) fn new(own: LaneOffer, cqs: (Arc<F::Cq>, Arc<F::Cq>), server: Incarnation) -> ShardMend<F> {
        ShardMend {
            own,
            cqs,
            server,
            attempts: BTreeMap::new(),
            answered: false,
            held: None,
            publish_due: false,
            probe: None,
            next_probe: Tick(0),
            probe_lane: 0,
        }
    }

    /// This side's offer for publication: of ends that are there. A shard that starts answers all of an offer or nothing.
    fn offer<R>(&mut self, channel: &Channel<F, R>) -> Vec<u8> {
        let attempts = &self.attempts;
        let is_there = |end: &LaneEnd| {
            let lane = channel.lanes().get(end.lane as usize);
            attempts.contains_key(&end.lane) || lane.is_some_and(|lane| lane.active() == end.generation)
        };
        self.own.ends.retain(is_there);
        self.own.encode()
    }
}

/// Rebuilds lanes to all shards.
#[derive(Debug)]
pub(crate) struct Mender<F: Fabric> {
    settings: Settings,
    policy: RebuildPolicy,
    incarnation: Incarnation,
    shards: Vec<ShardMend<F>>,
    board_up: bool,
    next_sweep: Tick,
    nonce: u64,
}

/// How the options say that lanes are rebuilt.
pub(crate) fn policy(settings: &Settings, incarnation: Incarnation) -> RebuildPolicy {
    let ms = Duration::from_millis;
    RebuildPolicy {
        enabled: settings.lane_rebuild_enabled,
        attempts_max: settings.lane_rebuild_max_attempts,
        refill: (settings.lane_rebuild_refill_ms > 0).then(|| ms(settings.lane_rebuild_refill_ms)),
        wait: ms(settings.lane_rebuild_wait_ms),
        cooldown: ms(settings.lane_rebuild_cooldown_ms),
        spread: u64::try_from(incarnation.0 >> 64).unwrap_or(0),
    }
}

impl<F: Fabric> Mender<F> {
    pub(crate) fn new(settings: &Settings, incarnation: Incarnation, shards: Vec<ShardMend<F>>) -> Mender<F> {
        Mender {
            settings: settings.clone(),
            policy: policy(settings, incarnation),
            incarnation,
            shards,
            board_up: true,
            next_sweep: Tick(0),
            nonce: u64::try_from(incarnation.0 & u128::from(u64::MAX)).unwrap_or(1),
        }
    }

    /// Takes news; the next step acts on it.
    pub(crate) fn hear<R>(&mut self, at: Tick, news: News, channels: &[Channel<F, R>]) {
        match news {
            News::Board(up) => self.board_up = up,
            News::Answered(shard) => {
                if let Some(shard) = self.shards.get_mut(shard as usize) {
                    shard.answered = true;
                }
            }
            News::Down(shard) => {
                if let Some(shard) = self.shards.get_mut(shard as usize) {
                    shard.held = Some(at.after(HOLD_MAX));
                }
            }
            News::Heard(shard) => {
                if let (Some(state), Some(channel)) =
                    (self.shards.get_mut(shard as usize), channels.get(shard as usize))
                {
                    state.held = None;
                    channel.lanes().iter().for_each(|lane| lane.peer_is_heard(&self.policy));
                }
            }
            News::Up(shard) => {
                if let (Some(state), Some(channel)) =
                    (self.shards.get_mut(shard as usize), channels.get(shard as usize))
                {
                    state.held = None;
                    // What is under way may have been left for the process before, and thrown away with it.
                    state.publish_due |= !state.attempts.is_empty();
                    channel.lanes().iter().for_each(|lane| lane.peer_is_back(&self.policy));
                }
            }
        }
    }

    /// Does what is due. `buffers` are the regions that shards may reach beside the slots. When to be called next, unless
    /// there are news first.
    pub(crate) fn step<R>(
        &mut self,
        at: Tick,
        fabric: &F,
        board: &impl Board,
        channels: &[Channel<F, R>],
        buffers: &Buffers<F>,
    ) -> Option<Tick> {
        let sweep = self.settings.lane_rebuild_sweep_ms;
        let sweeping = sweep > 0 && self.next_sweep <= at;
        if sweeping {
            self.next_sweep = at.after(Duration::from_millis(sweep));
        }
        let mut next = (sweep > 0).then_some(self.next_sweep);
        for (index, channel) in (0_u32..).zip(channels) {
            let due = [
                self.begin(at, index, channel, fabric, board, buffers, sweeping),
                self.go_on(at, index, channel, board, buffers),
                self.probe_idle(at, index, channel),
            ];
            next = due.into_iter().flatten().chain(next).min();
        }
        next
    }

    /// Begins attempts for the lanes that want one.
    #[allow(clippy::too_many_arguments)] // what a step is handed, for one shard
    fn begin<R>(
        &mut self,
        at: Tick,
        index: u32,
        channel: &Channel<F, R>,
        fabric: &F,
        board: &impl Board,
        buffers: &Buffers<F>,
        sweeping: bool,
    ) -> Option<Tick> {
        let mut begun = Vec::new();
        let mut next: Option<Tick> = None;
        if !self.policy.enabled {
            channel.keep_spare();
        }
        let later = |next: &mut Option<Tick>, when: Tick| *next = Some(next.map_or(when, |known| known.min(when)));
        for lane in channel.lanes() {
            if sweeping {
                // An idle lane's queue pair may have gone to ERR unseen. The state says what came of the look.
                let _ = lane.check();
            }
            let looked_after = self.settings.lane_rebuild_sweep_ms > 0 && !lane.is_fresh();
            if lane.active() != 0 || !(lane.is_wanted() || looked_after) {
                continue;
            }
            let held = self.shards[index as usize].held.filter(|until| *until > at);
            if let Some(until) = held.filter(|_| self.settings.health_push) {
                later(&mut next, until);
                continue;
            }
            if !self.board_up {
                continue;
            }
            match lane.next_step(at, &self.policy) {
                Want::Nothing | Want::Disabled => {}
                Want::Later(when) => later(&mut next, when),
                Want::Exhausted => {
                    crate::event!(
                        crate::observe::Level::ERROR,
                        crate::observe::events::LANE_REBUILD_EXHAUSTED,
                        shard = index,
                        lane = lane.number(),
                        generation = lane.life().generation(),
                        attempts = lane.life().attempts(),
                        reason = lane.life().reason().map_or("none", DirtyReason::name),
                    );
                }
                Want::Begin { generation, deadline } => begun.push((lane.number(), generation, deadline)),
            }
        }
        if !begun.is_empty() {
            if let Err(error) = self.offer(at, index, channel, fabric, board, buffers, &begun) {
                for (lane, generation, _) in &begun {
                    give_up(channel, *lane, *generation, "offer", &error);
                    self.shards[index as usize].attempts.remove(lane);
                }
            }
            next = Some(at.after(Duration::from_millis(1)));
        }
        next
    }

    /// Makes this side's end of lanes in fresh memory, and publishes it.
    #[allow(clippy::too_many_arguments)] // as above
    fn offer<R>(
        &mut self,
        at: Tick,
        index: u32,
        channel: &Channel<F, R>,
        fabric: &F,
        board: &impl Board,
        buffers: &Buffers<F>,
        begun: &[(u32, u32, Tick)],
    ) -> Result<()> {
        let shard = &mut self.shards[index as usize];
        let numbers: Vec<(u32, u32)> = begun.iter().map(|(lane, generation, _)| (*lane, *generation)).collect();
        let (send, recv) = &shard.cqs;
        let made_with = lock(buffers).clone();
        let end = End::make(fabric, &self.settings, EndOf::Client, &numbers, &made_with, |_| Completions {
            send: Arc::clone(send),
            recv: Arc::clone(recv),
            waker: None,
        })?;
        for (place, (_, generation, _)) in begun.iter().enumerate() {
            if let Some(described) = end.describe(place, *generation, 0) {
                // In the order of their lanes, as an offer must be.
                match shard.own.ends.binary_search_by_key(&described.lane, |known| known.lane) {
                    Ok(known) => shard.own.ends[known] = described,
                    Err(next) => shard.own.ends.insert(next, described),
                }
            }
        }
        let End { lanes, slots, staging, geometry } = end;
        for ((place, (lane, generation, qp)), (_, _, deadline)) in (0..).zip(lanes).zip(begun) {
            let here = Placement { place, geometry };
            let reach = Reach::of(made_with.clone());
            let stage = Stage::Offered { qp, slots: slots.clone(), staging: staging.clone(), here, reach };
            shard.attempts.insert(lane, Attempt { generation, began: at, deadline: *deadline, stage });
        }
        board.publish(index, shard.offer(channel))
    }

    /// Moves attempts on: reads answers, connects, looks for probes, ends those whose time is over.
    fn go_on<R>(
        &mut self,
        at: Tick,
        index: u32,
        channel: &Channel<F, R>,
        board: &impl Board,
        buffers: &Buffers<F>,
    ) -> Option<Tick> {
        let shard = &mut self.shards[index as usize];
        let offered = shard.attempts.values().any(|attempt| matches!(attempt.stage, Stage::Offered { .. }));
        if core::mem::take(&mut shard.answered) && offered {
            match board.read(index).and_then(|bytes| decode_offer(&bytes, &self.settings, EndOf::Server)) {
                Ok(answer) => self.take_answer(index, channel, &answer, buffers),
                Err(error) => crate::event!(
                    crate::observe::Level::WARN,
                    crate::observe::events::LANE_REBUILD_FAILED,
                    shard = index,
                    phase = "answer",
                    error = %error
                ),
            }
        }
        self.look_at_probes(index, channel, buffers);
        let shard = &mut self.shards[index as usize];
        for (lane, attempt) in &mut shard.attempts {
            if attempt.deadline <= at && !matches!(attempt.stage, Stage::Over) {
                let phase = if matches!(attempt.stage, Stage::Offered { .. }) { "answer" } else { "probe" };
                attempt.stage = Stage::Over;
                if let Some(lane) = channel.lanes().get(*lane as usize)
                    && lane.attempt_failed(attempt.generation)
                {
                    crate::event!(
                        crate::observe::Level::WARN,
                        crate::observe::events::LANE_REBUILD_TIMEOUT,
                        shard = index,
                        lane = lane.number(),
                        generation = attempt.generation,
                        attempts = lane.life().attempts(),
                        phase,
                        wait_ms = at.since_ns(attempt.began) / 1_000_000,
                    );
                }
            }
        }
        shard.attempts.retain(|_, attempt| !matches!(attempt.stage, Stage::Over));
        let publish_due = core::mem::take(&mut shard.publish_due);
        if publish_due && let Err(error) = board.publish(index, shard.offer(channel)) {
            // The lanes work without: the shard gives up only what it never heard of again.
            crate::event!(
                crate::observe::Level::WARN,
                crate::observe::events::LANE_REBUILD_FAILED,
                shard = index,
                phase = "publish",
                error = %error
            );
        }
        let probing = shard.attempts.values().any(|attempt| matches!(attempt.stage, Stage::Probing { .. }));
        let deadline = shard.attempts.values().map(|attempt| attempt.deadline).min();
        if probing { Some(at.after(PROBE_LOOK)) } else { deadline }
    }

    /// Connects every attempt that this answer is for.
    fn take_answer<R>(&mut self, index: u32, channel: &Channel<F, R>, answer: &LaneOffer, buffers: &Buffers<F>) {
        let scheme = Scheme::from_code(answer.scheme);
        let me = self.incarnation;
        let shard = &mut self.shards[index as usize];
        if !self.policy.enabled && answer.incarnation != shard.server {
            let message = format!("shard {index} is another process now, and rdma-lane-rebuild-enabled is off");
            let error = Error::new(Status::ShardUnreachable, message);
            for (lane, attempt) in core::mem::take(&mut shard.attempts) {
                give_up(channel, lane, attempt.generation, "answer", &error);
            }
            return;
        }
        let mut met = false;
        for (lane, attempt) in &mut shard.attempts {
            let Some(end) = answer.answer_to(me, *lane, attempt.generation) else { continue };
            let Stage::Offered { .. } = attempt.stage else { continue };
            met = true;
            let Stage::Offered { qp, slots, staging, here, mut reach } =
                core::mem::replace(&mut attempt.stage, Stage::Over)
            else {
                continue;
            };
            self.nonce = self.nonce.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let nonce = self.nonce ^ u64::from(attempt.generation);
            let connected = scheme
                .ok_or_else(|| {
                    let message = format!("shard {index} answered an unknown commit scheme");
                    Error::new(Status::DeploymentMismatch, message)
                })
                .and_then(|scheme| {
                    qp.connect(&end.queue_pair, attempt.deadline.remaining())?;
                    reach.follow(&qp, buffers, attempt.deadline)?;
                    let parts = ClientLaneParts {
                        shard: index,
                        lane: *lane,
                        generation: attempt.generation,
                        scheme,
                        here,
                        there: placement(answer, end),
                        qp,
                        send_cq: Arc::clone(&shard.cqs.0),
                        recv_cq: Arc::clone(&shard.cqs.1),
                        responses: slots,
                        staging,
                        remote: end.region,
                        witness: Witness::new(answer.incarnation, answer.window),
                        rows: answer.rows.filter(|_| self.settings.shared_reads == SharedReads::Auto),
                    };
                    Connection::probe(parts, nonce)
                });
            match connected {
                Ok(connection) => {
                    attempt.stage = Stage::Probing { connection: Box::new(connection), echo: end.generation, reach };
                }
                Err(error) => give_up(channel, *lane, attempt.generation, "connect", &error),
            }
        }
        if met && answer.incarnation != shard.server {
            let former = core::mem::replace(&mut shard.server, answer.incarnation);
            channel.lanes().iter().for_each(|lane| lane.fail_peer(former, DirtyReason::PeerGone));
        }
        shard.own.answers = if met { answer.incarnation } else { shard.own.answers };
    }

    /// Takes lanes into use whose probe has come back.
    fn look_at_probes<R>(&mut self, index: u32, channel: &Channel<F, R>, buffers: &Buffers<F>) {
        let shard = &mut self.shards[index as usize];
        for (number, attempt) in &mut shard.attempts {
            let Stage::Probing { connection, .. } = &attempt.stage else { continue };
            let (Some(came_back), Some(lane)) = (connection.probe_came_back(), channel.lanes().get(*number as usize))
            else {
                continue;
            };
            let Stage::Probing { connection, echo, reach } = core::mem::replace(&mut attempt.stage, Stage::Over) else {
                continue;
            };
            if !came_back {
                let error = Error::new(Status::CorruptResponse, "the probe did not come back as it was sent");
                give_up(channel, *number, attempt.generation, "probe", &error);
                continue;
            }
            let (life, is_first) = (lane.life(), lane.is_fresh());
            match reach.take_into_use(lane, *connection, buffers, attempt.deadline) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(error) => {
                    give_up(channel, *number, attempt.generation, "expose", &error);
                    continue;
                }
            }
            if is_first {
                crate::event!(
                    crate::observe::Level::DEBUG,
                    crate::observe::events::LANE_CONNECTED,
                    shard = index,
                    lane = *number,
                    generation = attempt.generation,
                    side = "client"
                );
            } else {
                crate::event!(
                    crate::observe::Level::INFO,
                    crate::observe::events::LANE_RECOVERED,
                    shard = index,
                    lane = *number,
                    generation = attempt.generation,
                    attempts = life.attempts(),
                    reason = life.reason().map_or("none", DirtyReason::name),
                    down_ms = now().since_ns(life.dirty_since()) / 1_000_000,
                    side = "client"
                );
            }
            channel.move_idle_slots(*number);
            if let Some(end) = shard.own.ends.iter_mut().find(|end| end.lane == *number) {
                end.answers = echo;
            }
            shard.publish_due = true;
        }
    }

    /// Probes a lane of a shard that nothing is under way to.
    fn probe_idle<R>(&mut self, at: Tick, index: u32, channel: &Channel<F, R>) -> Option<Tick> {
        let every = self.settings.lane_probe_idle_ms;
        if every == 0 {
            return None;
        }
        let every = Duration::from_millis(every);
        let shard = &mut self.shards[index as usize];
        if let Some((probe, deadline)) = &shard.probe {
            if channel.probe_over(probe) {
                shard.probe = None;
                shard.next_probe = at.after(every);
            } else if *deadline <= at {
                channel.probe_failed(probe);
                shard.probe = None;
                shard.next_probe = at.after(every);
            } else {
                return Some((*deadline).min(at.after(Duration::from_millis(1))));
            }
        }
        if shard.next_probe > at {
            return Some(shard.next_probe);
        }
        shard.next_probe = at.after(every);
        if channel.held_count() == 0 && shard.attempts.is_empty() {
            shard.probe_lane = (shard.probe_lane + 1) % u32::try_from(channel.lanes().len().max(1)).unwrap_or(1);
            let patience = Duration::from_millis(self.settings.health_probe_timeout_ms);
            shard.probe = channel.probe_lane(shard.probe_lane).map(|probe| (probe, at.after(patience)));
            return Some(at.after(Duration::from_millis(1)));
        }
        Some(shard.next_probe)
    }

    /// Ends what is under way.
    pub(crate) fn close<R>(&mut self, channels: &[Channel<F, R>]) {
        for (shard, channel) in self.shards.iter_mut().zip(channels) {
            shard.attempts.clear();
            if let Some((probe, _)) = shard.probe.take() {
                channel.probe_dropped(&probe);
            }
        }
    }
}

/// An attempt failed before its time was over.
fn give_up<F: Fabric, R>(channel: &Channel<F, R>, lane: u32, generation: u32, phase: &str, error: &Error) {
    if let Some(lane) = channel.lanes().get(lane as usize)
        && lane.attempt_failed(generation)
    {
        crate::event!(
            crate::observe::Level::WARN,
            crate::observe::events::LANE_REBUILD_FAILED,
            shard = channel.shard(),
            lane = lane.number(),
            generation,
            attempts = lane.life().attempts(),
            phase,
            error = %error
        );
    }
}
