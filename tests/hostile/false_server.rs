//! A server that answers with nonsense: the client must fail in words, and touch no memory but the caller's own rows.

use super::attacker::identity;
use super::bed::{Dice, PATIENCE, number, until};
use reclane::control::{ControlClient, ControlPlane, Event, Member, Peer, Role};
use reclane::engine::{Client, Request, Target};
use reclane::fabric::shm::{Shm, ShmOptions};
use reclane::fabric::{Access, Fabric, Qp, QpConfig, Region, RemoteAddr};
use reclane::ids::{Incarnation, ShardId, TableTag};
use reclane::lane::{LaneEnd, LaneOffer};
use reclane::options::{Options, Settings, Side};
use reclane::wire::{Geometry, HEADER_BYTES, Progress, RequestHeader, ResponseHeader, Word};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

fn settings(port: u16, integrity: &str) -> Settings {
    let mut options = Options::new();
    let port = port.to_string();
    for (name, value) in [
        ("rdma-namespace", "false-server"),
        ("rdma-control-plane-port", port.as_str()),
        ("qps-per-client-per-shard", "1"),
        ("slots-per-qp", "1"),
        ("rdma-rc-request-slot-bytes", "8192"),
        ("rdma-rc-response-slot-bytes", "40960"),
        ("value-size", "128"),
        ("commit-scheme", "single"),
        ("integrity", integrity),
    ] {
        options.set(name, value).expect("a valid option");
    }
    options.settings(Side::Client).expect("valid options")
}

/// Answers every request with a header that was changed at random.
fn serve(settings: &Settings, member: &ControlClient, me: Incarnation, stop: &AtomicBool) -> u64 {
    let (from, client) = until("lanes of the client", || match member.next_event(PATIENCE) {
        Some(Event::LanesPublished { from, incarnation }) => Some((from, incarnation)),
        _ => None,
    });
    let offer = LaneOffer::decode(&member.get_lanes(from, PATIENCE).expect("an offer")).expect("an offer");
    let g: Geometry = offer.geometry;
    let fabric = Shm::open(ShmOptions::default()).expect("shm");
    let cq = fabric.create_cq(64).expect("a queue");
    let requests = fabric.allocate(g.server_region_bytes(), Access::REMOTE_WRITE).expect("memory");
    let config = QpConfig { max_send_wr: 8, max_recv_wr: settings.slots_per_qp * 2, max_send_sge: 0, generation: 1 };
    let rows = fabric.allocate(8 << 20, Access::REMOTE_READ).expect("memory");
    let exposed = [requests.clone(), rows.clone()];
    let qp = fabric.create_qp(&config, &exposed, &cq, &cq, None).expect("a queue pair");
    let answer = LaneOffer {
        incarnation: me,
        answers: client,
        window: 1,
        // Memory that can be read, and is no file of rows.
        rows: Some(rows.address()),
        ends: vec![LaneEnd {
            answers: offer.ends[0].generation,
            region: requests.address(),
            queue_pair: qp.address(),
            ..offer.ends[0].clone()
        }],
        ..offer.clone()
    };
    qp.connect(&offer.ends[0].queue_pair, PATIENCE).expect("connects");
    let place = RemoteAddr { address: offer.ends[0].region.iova, rkey: offer.ends[0].region.rkey };
    let window = qp.window(place, g.client_region_bytes(), Access::REMOTE_WRITE).expect("a window").as_ptr();
    member.publish_lanes(from, answer.encode()).expect("published");
    let mut dice = Dice::new(number("RECLANE_HOSTILE_SEED", 20_261_129));
    let (mut word, mut served) = (Word::new(1, 1), 0);
    let word_at = |base: *mut u8, at: usize| -> &AtomicU64 {
        // SAFETY: within the mapped header, aligned, touched by atomics only.
        unsafe { AtomicU64::from_ptr(base.wrapping_add(at).cast()) }
    };
    while !stop.load(Ordering::Relaxed) {
        if word_at(requests.base().as_ptr(), 56).load(Ordering::Acquire) != word.0 {
            std::thread::yield_now();
            continue;
        }
        let mut bytes = [0; HEADER_BYTES];
        // SAFETY: the header of the only slot.
        unsafe { core::ptr::copy_nonoverlapping(requests.base().as_ptr(), bytes.as_mut_ptr(), HEADER_BYTES) };
        let request = RequestHeader::from_bytes(&bytes);
        let header = window.wrapping_add(g.response_header(0, 0));
        let progress = Progress::new(word.slot_sequence(), dice.edge(request.key_count));
        word_at(header, 48).store(progress.0, Ordering::Release);
        for (at, bytes) in nonsense(&request, &mut dice).to_bytes().chunks_exact(8).enumerate() {
            let value = u64::from_ne_bytes(bytes.try_into().expect("8 bytes"));
            word_at(header, at * 8).store(value, Ordering::Release);
        }
        word = word.next();
        served += 1;
    }
    served
}

fn nonsense(request: &RequestHeader, dice: &mut Dice) -> ResponseHeader {
    let mut answer = ResponseHeader {
        status: 0,
        response_bytes: request.response_bytes,
        sequence: request.sequence,
        checksum: 0,
        aux: dice.small(),
        inline: [0x4141_4141_4141_4141; 3],
        progress: Progress::new(request.commit.slot_sequence(), dice.edge(request.key_count)),
        word: request.commit,
    };
    match dice.below(5) {
        0 => answer.response_bytes = dice.edge(request.response_bytes),
        1 => answer.status = dice.small().cast_signed(),
        2 => answer.sequence = dice.roll(),
        3 => answer.checksum = dice.small(),
        _ => {}
    }
    answer
}

fn against_nonsense(integrity: &str) {
    let identity_settings = settings(1, integrity);
    let plane = ControlPlane::serve("127.0.0.1", 0, &identity(&identity_settings)).expect("a control plane");
    let settings = settings(plane.port(), integrity);
    let me = Incarnation(0x5e);
    let role = Role::Server(ShardId(0));
    let member = Member { role, incarnation: me, pid: std::process::id(), host: "evil".to_owned() };
    let member =
        ControlClient::join("127.0.0.1", plane.port(), PATIENCE, &identity(&settings), &member).expect("joins");
    assert!(matches!(member.me(), Peer::Server(_)));
    member.ready().expect("ready");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let server = scope.spawn(|| serve(&settings, &member, me, &stop));
        let client = Client::open(&settings).expect("a client");
        let (mut failed, mut done, mut passed_for_success) = (0, 0, 0);
        for round in 0..2000_usize {
            let keys: Vec<u64> = (0..[1, 3, 64, 300][round % 4]).collect();
            // What lies around the rows must stay as it is.
            let (guard, floats) = (64, keys.len() * 32);
            let mut memory = vec![7.0_f32; guard + floats + guard];
            let target = Target::Memory { rows: memory[guard..].as_mut_ptr(), capacity: floats };
            let request = Request::Get { table: TableTag(0), keys: &keys, target };
            // SAFETY: what the request points to outlives the call, which returns when it is over.
            match unsafe { client.call(&request) } {
                Ok(()) => done += 1,
                Err(error) => {
                    failed += 1;
                    // "Done" with another length once came out as success over the C interface.
                    passed_for_success += u32::from(error.status as i32 >= 0);
                }
            }
            let around = memory[..guard].iter().chain(&memory[guard + floats..]);
            assert!(around.copied().all(|float| float.to_bits() == 7.0_f32.to_bits()), "round {round}");
        }
        stop.store(true, Ordering::Relaxed);
        assert_eq!(server.join().expect("no panic"), 2000);
        assert_eq!(passed_for_success, 0);
        assert!(failed > 100 && (integrity != "off" || done > 100), "{failed} failed, {done} done");
    });
}

#[test]
fn nonsense_in_answers_is_an_error_and_nothing_else() {
    against_nonsense("off");
}

#[test]
fn nonsense_in_answers_does_not_agree_with_a_checksum() {
    against_nonsense("crc32c");
}
