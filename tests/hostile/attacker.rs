//! A client that keeps to no rule: it joined and connected in order, and from then on has raw memory in its hands.

use super::bed::{Bed, PATIENCE, until};
use reclane::control::{ControlClient, Identity, Member, Peer, Role};
use reclane::fabric::shm::{Shm, ShmOptions};
use reclane::fabric::{
    Access, Completion, Cq, Fabric, Qp, QpConfig, Region, RegionAddress, RemoteAddr, Sge, Work, WorkOp,
};
use reclane::ids::{Epoch, Incarnation, ShardId};
use reclane::lane::{LaneEnd, LaneOffer};
use reclane::options::{Integrity, Settings};
use reclane::rpc::Scheme;
use reclane::wire::{Geometry, HEADER_BYTES, RequestHeader, ResponseHeader, Word, request_checksum, response_offsets};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

type ShmQp = <Shm as Fabric>::Qp;
type ShmRegion = <Shm as Fabric>::Region;

pub const EXTRA_BYTES: usize = 1 << 16;
pub const SERVER: Peer = Peer::Server(ShardId(0));

pub fn identity(settings: &Settings) -> Identity {
    Identity {
        deployment_id: settings.deployment_id.clone(),
        epoch: Epoch(settings.deployment_epoch),
        namespace: settings.namespace.clone(),
        num_shards: settings.num_shards,
        layout: settings.layout(),
        secret: reclane::control::Secret::default(),
    }
}

/// A member of the control plane without any lane.
pub struct Joined {
    pub control: ControlClient,
    pub incarnation: Incarnation,
    pub settings: Settings,
}

impl Joined {
    /// The server's answer to this process's offer. A number is given out again, so what its last holder was answered may
    /// come first.
    pub fn answer(&self) -> LaneOffer {
        until("answer to an offer", || {
            let bytes = self.control.get_lanes(SERVER, PATIENCE).expect("an answer");
            let answer = LaneOffer::decode(&bytes).expect("an offer");
            (answer.answers == self.incarnation).then_some(answer)
        })
    }

    pub fn new(bed: &Bed) -> Joined {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let incarnation = Incarnation((0xbad_u128 << 64) | u128::from(number));
        let settings = bed.client_settings();
        let member = Member { role: Role::Client(None), incarnation, pid: std::process::id(), host: "evil".to_owned() };
        let (host, port) = (&settings.control_plane_host, settings.control_plane_port);
        let control = ControlClient::join(host, port, PATIENCE, &identity(&settings), &member).expect("joins");
        control.wait_servers_ready(PATIENCE).expect("a ready server");
        Joined { control, incarnation, settings }
    }

    pub fn geometry(&self) -> Geometry {
        geometry(&self.settings)
    }
}

pub fn geometry(settings: &Settings) -> Geometry {
    Geometry {
        lanes: settings.qps_per_client_per_shard,
        slots: settings.slots_per_qp,
        request_payload_bytes: settings.request_slot_bytes,
        response_payload_bytes: settings.response_slot_bytes,
    }
}

/// What a process says of its end.
pub fn offer(half: &Half, settings: &Settings, incarnation: Incarnation, scheme: Scheme) -> LaneOffer {
    LaneOffer {
        incarnation,
        answers: Incarnation(0),
        window: 0,
        scheme: scheme as u8,
        integrity: u8::from(settings.integrity == Integrity::Crc32c),
        geometry: geometry(settings),
        rows: None,
        ends: half.ends(settings.qps_per_client_per_shard),
    }
}

/// This end's queue pairs and memory.
pub struct Half {
    pub cq: Arc<<Shm as Fabric>::Cq>,
    pub qps: Vec<ShmQp>,
    pub responses: ShmRegion,
    pub extra: ShmRegion,
}

impl Half {
    pub fn new(geometry: Geometry) -> Half {
        Half::sized(geometry.lanes, geometry.slots, geometry.client_region_bytes())
    }

    pub fn sized(lanes: u32, slots: u32, bytes: usize) -> Half {
        let fabric = Shm::open(ShmOptions::default()).expect("shm");
        let cq = fabric.create_cq(1024).expect("a queue");
        let responses = fabric.allocate(bytes, Access::REMOTE_WRITE).expect("memory");
        let extra = fabric.allocate(EXTRA_BYTES, Access::ALL).expect("memory");
        let config = QpConfig { max_send_wr: 1024, max_recv_wr: slots * 2, max_send_sge: 0, generation: 1 };
        let exposed = [responses.clone(), extra.clone()];
        let make = |_| fabric.create_qp(&config, &exposed, &cq, &cq, None).expect("a queue pair");
        let qps = (0..lanes).map(make).collect();
        Half { cq, qps, responses, extra }
    }

    /// One end per lane, all in one region.
    pub fn ends(&self, places: u32) -> Vec<LaneEnd> {
        let region = self.responses.address();
        let end = |(lane, qp): (u32, &ShmQp)| LaneEnd {
            lane,
            generation: 1,
            answers: 0,
            place: lane,
            places,
            region,
            queue_pair: qp.address(),
        };
        (0..).zip(&self.qps).map(end).collect()
    }

    pub fn offer(&self, joined: &Joined, scheme: Scheme) -> LaneOffer {
        offer(self, &joined.settings, joined.incarnation, scheme)
    }
}

/// Where one slot stands.
#[derive(Clone, Copy)]
pub struct Place {
    pub header: *mut u8,
    pub payload: *mut u8,
    pub response: *const u8,
    pub word: Word,
}

// SAFETY: the places point into memory that the attacker keeps mapped; they are touched by raw copies and atomics.
unsafe impl Send for Place {}

pub struct Attacker {
    pub joined: Joined,
    pub half: Half,
    pub scheme: Scheme,
    pub server: RegionAddress,
    /// All of the memory that the server gave.
    pub window: *mut u8,
    pub window_bytes: usize,
    pub places: Vec<Place>,
    arrived: Vec<u32>,
}

impl Attacker {
    pub fn connect(bed: &Bed, scheme: Scheme) -> Attacker {
        let joined = Joined::new(bed);
        let half = Half::new(joined.geometry());
        joined.control.publish_lanes(SERVER, half.offer(&joined, scheme).encode()).expect("published");
        Attacker::finish(joined, half)
    }

    /// Connects to the server's answer to an offer that was published.
    pub fn finish(joined: Joined, half: Half) -> Attacker {
        let answer = joined.answer();
        for (qp, end) in half.qps.iter().zip(&answer.ends) {
            qp.connect(&end.queue_pair, PATIENCE).expect("connects");
        }
        let (g, server) = (joined.geometry(), answer.ends[0].region);
        let place = |offset: usize| RemoteAddr { address: server.iova + offset as u64, rkey: server.rkey };
        let window_bytes = usize::try_from(server.bytes).expect("small");
        let window = half.qps[0].window(place(0), window_bytes, Access::REMOTE_WRITE).expect("a window").as_ptr();
        let scheme = Scheme::from_code(answer.scheme).expect("a scheme");
        let mut places = Vec::new();
        for lane in 0..g.lanes {
            for slot in 0..g.slots {
                let response = half.responses.base().as_ptr().wrapping_add(g.response_header(lane, slot));
                places.push(Place {
                    header: window.wrapping_add(g.request_header(lane, slot)),
                    payload: window.wrapping_add(g.request_payload(lane, slot)),
                    response,
                    word: Word::new(answer.ends[0].answers, 0),
                });
            }
        }
        if scheme == Scheme::Imm {
            half.qps.iter().for_each(|qp| qp.post_receives(g.slots).expect("receives"));
        }
        let arrived = vec![0; places.len()];
        Attacker { joined, half, scheme, server, window, window_bytes, places, arrived }
    }

    pub fn qp_of(&self, index: usize) -> &ShmQp {
        &self.half.qps[index / self.joined.settings.slots_per_qp as usize]
    }

    pub fn payload_max(&self) -> usize {
        self.joined.settings.request_slot_bytes as usize
    }

    pub fn keys_max(&self) -> u32 {
        self.joined.settings.max_kv_num_per_request
    }

    /// Puts bytes where a request's payload lies.
    pub fn write_payload(&self, index: usize, bytes: &[u8]) {
        assert!(bytes.len() <= self.payload_max());
        // SAFETY: the place has room for the longest payload.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), self.places[index].payload, bytes.len()) };
    }

    /// Fills in word and, where asked for or needed, the checksum over what lies there.
    pub fn seal(&self, index: usize, header: &mut RequestHeader, checksum: bool) {
        header.commit = self.places[index].word.next();
        if checksum {
            let covered = (header.payload_bytes as usize).min(self.payload_max());
            let mut payload = vec![0; covered];
            // SAFETY: `covered` bytes lie in the payload's place.
            unsafe { core::ptr::copy_nonoverlapping(self.places[index].payload, payload.as_mut_ptr(), covered) };
            header.checksum = reclane::wire::checksum_append(request_checksum(&header.to_words()), &payload);
        }
    }

    /// Stores a header as it is, its last word last, and tells the server.
    pub fn store(&self, index: usize, header: &RequestHeader) {
        let place = self.places[index].header;
        for (at, bytes) in (0..).zip(header.to_bytes().chunks_exact(8)) {
            let word = u64::from_ne_bytes(bytes.try_into().expect("8 bytes"));
            // SAFETY: the header is mapped and aligned; it is touched by atomics only.
            let target = unsafe { AtomicU64::from_ptr(place.add(at * 8).cast()) };
            target.store(word, if at == 7 { Ordering::Release } else { Ordering::Relaxed });
        }
        self.ring(index);
    }

    fn ring(&self, index: usize) {
        if self.scheme != Scheme::Imm {
            self.qp_of(index).doorbell();
            return;
        }
        self.send_immediate(index, u32::try_from(index).expect("small"));
    }

    /// A write-with-immediate of any number over the header's own bytes.
    pub fn send_immediate(&self, index: usize, imm: u32) {
        let place = self.places[index].header;
        let local = [Sge { address: place, bytes: 64, lkey: 0 }];
        let offset = place as usize - self.window as usize;
        let remote = RemoteAddr { address: self.server.iova + offset as u64, rkey: self.server.rkey };
        let work = Work { wr_id: 1, op: WorkOp::WriteImm(imm), local: &local, remote, signaled: true };
        // SAFETY: the piece lies in the server's window, which stays mapped.
        unsafe { self.qp_of(index).post(&[work]) }.expect("posts");
    }

    /// Counts the use that the next answer must name, and stores the header.
    pub fn commit(&mut self, index: usize, header: &RequestHeader) {
        self.places[index].word = self.places[index].word.next();
        self.store(index, header);
    }

    fn harvest(&mut self) {
        let mut out = [Completion::EMPTY; 64];
        let count = self.half.cq.poll(&mut out);
        for done in &out[..count] {
            if done.opcode == reclane::fabric::WcOpcode::ReceiveImm {
                let index = done.imm as usize;
                self.arrived[index] += 1;
                self.qp_of(index).post_receives(1).expect("receives");
            }
        }
    }

    pub fn response_word(&self, index: usize) -> u64 {
        // SAFETY: the response header is mapped and aligned; it is touched by atomics only.
        let word =
            unsafe { AtomicU64::from_ptr(self.places[index].response.add(response_offsets::WORD).cast_mut().cast()) };
        word.load(Ordering::Acquire)
    }

    /// The answer to the request under way in this slot.
    pub fn answer(&mut self, index: usize) -> ResponseHeader {
        let expected = self.places[index].word.0;
        until("answer to a committed request", || {
            if self.scheme == Scheme::Imm {
                self.harvest();
            }
            (self.response_word(index) == expected).then_some(())
        });
        if self.scheme == Scheme::Imm {
            until("immediate of an answer", || {
                self.harvest();
                (self.arrived[index] > 0).then_some(())
            });
            self.arrived[index] -= 1;
        }
        let mut bytes = [0; HEADER_BYTES];
        // SAFETY: the response header lies in this process's region.
        unsafe { core::ptr::copy_nonoverlapping(self.places[index].response, bytes.as_mut_ptr(), HEADER_BYTES) };
        ResponseHeader::from_bytes(&bytes)
    }

    /// One request and its answer.
    pub fn ask(&mut self, index: usize, mut header: RequestHeader, payload: &[u8]) -> ResponseHeader {
        self.write_payload(index, payload);
        header.payload_bytes = u32::try_from(payload.len()).expect("small");
        let summed = self.scheme == Scheme::Crc || header.flags & reclane::wire::flags::CHECKSUM != 0;
        self.seal(index, &mut header, summed);
        self.commit(index, &header);
        self.answer(index)
    }
}

pub fn blank(op: u8, table: u16, keys: u32) -> RequestHeader {
    let mut header = RequestHeader::from_bytes(&[0; HEADER_BYTES]);
    header.op = op;
    header.table = table;
    header.key_count = keys;
    header
}
