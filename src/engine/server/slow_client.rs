//! One client whose device answers nothing any more, and one beside it.

use super::guests::GuestLanes;
use super::poller::{IdlePolicy, Mailbox, Outlets, Poller, Station};
use super::respond::{Host, respond};
use crate::engine::builtin_store;
use crate::engine::client::offered::Offered;
use crate::engine::connect::{Completions, EndOf, decode_offer, geometry};
use crate::fabric::verbs::{Verbs, VerbsOptions, VerbsRegion};
use crate::fabric::{Access, Fabric, Qp, QpState, Region};
use crate::ids::{ClientId, Incarnation, TableTag};
use crate::lane::RebuildPolicy;
use crate::options::{Options, Settings, Side};
use crate::ps::client::{PsClient, PsClientOptions, Request, Rows, Target};
use crate::ps::{Handler, Router, Scratch};
use crate::rpc::{Bell, Claim, PacePolicy, ServerLane, Window};
use crate::sync::Arc;
use crate::time::now;
use crate::wire::{RequestHeader, flags};
use core::time::Duration;
use std::collections::BTreeMap;

type Asked<'a> = Request<'a, VerbsRegion>;

const DIM: usize = 32;
const SHARD: Incarnation = Incarnation(77);

fn settings() -> Settings {
    let mut options = Options::new();
    let pairs = [
        ("qps-per-client-per-shard", "1"),
        ("request-slot-bytes", "16384"),
        ("response-slot-bytes", "16384"),
        ("rdma-data-in-order", "yes"),
        // The device does not give the silent client up while the other one is served.
        ("rdma-retry-cnt", "7"),
        ("rdma-ack-timeout", "20"),
    ];
    pairs.iter().for_each(|(name, value)| options.set(name, value).expect("an option"));
    options.settings(Side::Both).expect("valid options")
}

fn open(settings: &Settings, last: bool) -> Verbs {
    let names = std::env::var("RECLANE_TEST_DEVICES").expect("RECLANE_TEST_DEVICES names the devices to test on");
    let all: Vec<&str> = names.split(',').collect();
    let device = if last { all[all.len() - 1] } else { all[0] };
    Verbs::open(&VerbsOptions { device: device.to_owned(), ..VerbsOptions::from_settings(settings) })
        .expect("verbs opens")
}

struct Guest {
    client: ClientId,
    incarnation: Incarnation,
    lane: Arc<ServerLane<Verbs>>,
    window: Arc<Window>,
    ps: PsClient<Verbs>,
}

/// A client that is let in by hand.
fn let_in(settings: &Settings, fabrics: (&Verbs, &Verbs), mailbox: &Mailbox<Verbs>, number: u32) -> Guest {
    let (client, incarnation) = (ClientId(number), Incarnation(u128::from(number) + 1000));
    let offered = Offered::make(fabrics.1, settings, incarnation).expect("an offer");
    let offer = decode_offer(&offered.encode(), settings, EndOf::Client).expect("an offer");
    let g = geometry(settings);
    let window = Arc::new(Window::new(1, g.lanes * g.slots));
    let host = Host {
        fabric: fabrics.0,
        settings,
        incarnation: SHARD,
        client,
        guest: incarnation,
        window: &window,
        rows: None,
    };
    let mut lanes =
        GuestLanes { known: BTreeMap::new(), ends: BTreeMap::new(), live: BTreeMap::new(), admitted: false };
    let station = &mailbox.stations[0];
    let completions = |_| Completions { send: Arc::clone(&station.send), recv: Arc::clone(&station.recv), waker: None };
    let deadline = now().after(Duration::from_secs(60));
    let mut made = Vec::new();
    let response =
        respond(&host, &mut lanes, &offer, (now(), deadline), completions, |lane| made.push(lane)).expect("let in");
    let answer = response.answer.expect("an answer");
    let met =
        offered.connect(fabrics.1, 0, settings, &answer, &Arc::new(Bell::default()), deadline).expect("connected");
    let options = PsClientOptions {
        keys_max: 300,
        get_flags: flags::COPY_ALLOWED,
        put_read: true,
        pace: PacePolicy { spins: 100, yields: u32::MAX, sleep: Duration::ZERO },
        growth: Duration::ZERO,
        wait_timeout: Duration::from_secs(300),
        default_dim: u32::try_from(DIM).expect("small"),
        retry: true,
        rebuild: RebuildPolicy { enabled: false, ..crate::engine::client::mend::policy(settings, incarnation) },
        health_after: Duration::ZERO,
        health_every: Duration::from_secs(1),
    };
    let ps = PsClient::new(vec![met.channel], Router::new(settings.hash_method, 1), options);
    Guest { client, incarnation, lane: made.remove(0), window, ps }
}

/// A PUT from a buffer, committed in the server's memory and not looked at by it yet.
fn commit(guest: &Guest, buffer: &VerbsRegion, keys: &[u64]) {
    let rows = Rows::Buffer { region: buffer, offset_bytes: 0 };
    // SAFETY: keys and buffer outlive the request: the test ends after it.
    unsafe { guest.ps.submit(&Request::Put { table: TableTag(0), keys, rows }) }.expect("a PUT");
    let parts = guest.lane.parts();
    let word =
        parts.requests.base().as_ptr().wrapping_add(parts.here.geometry.request_header(parts.here.place, 0) + 56);
    // SAFETY: the commit word of slot 0 lies in the lane's region.
    while unsafe { word.cast::<u64>().read_volatile() } == 0 {
        std::thread::yield_now();
    }
}

/// Ends the poll thread, however the test ends.
struct Stop(Arc<Mailbox<Verbs>>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

#[test]
fn a_client_that_gives_no_rows_holds_up_nobody() {
    let settings = settings();
    let (server, device) = (open(&settings, false), open(&settings, true));
    let station =
        Station { send: server.create_cq(64).expect("a queue"), recv: server.create_cq(64).expect("a queue") };
    let mailbox = Arc::new(Mailbox::new(vec![station], server.create_waker().expect("a waker")));
    let silent = let_in(&settings, (&server, &device), &mailbox, 1);
    let lively = let_in(&settings, (&server, &device), &mailbox, 2);
    let buffer = device.allocate(DIM * 4, Access::ALL).expect("a buffer");
    commit(&silent, &buffer, &[5]);
    // From here on its device drops whatever comes in.
    silent.ps.channels()[0].lanes()[0]
        .connection()
        .expect("connected at open")
        .parts()
        .qp
        .modify(QpState::Err)
        .expect("to ERR");
    let store = Arc::new(builtin_store(&settings).expect("a store"));
    let handler = Handler::new(store, 0, 300);
    let outlets = Outlets { gets: None, commands: None, hold: Arc::default() };
    let idle = IdlePolicy { spins: 1000, yields: 1000 };
    let poller = Poller::new(Arc::clone(&mailbox), handler, Scratch::new(0), (true, None), outlets, idle, None);
    mailbox.add(0, Arc::clone(&silent.lane));
    mailbox.add(0, Arc::clone(&lively.lane));
    std::thread::scope(|scope| {
        scope.spawn(move || poller.run());
        let _stop = Stop(Arc::clone(&mailbox));
        const GETS: u64 = 200;
        let mut row = vec![1.0_f32; DIM];
        for key in 0..GETS {
            let target = Target::Memory { rows: row.as_mut_ptr(), capacity: row.len() };
            let get = Asked::Get { table: TableTag(0), keys: &[key], target };
            // SAFETY: row and keys outlive the call.
            unsafe { lively.ps.call(&get) }.expect("a GET");
        }
        // Not over yet: all that time its rows were on their way.
        assert!(silent.lane.is_usable(), "the silent client was given up");
        assert_eq!(silent.window.claim(RequestHeader::identity(0, 0)), Claim::UnderWay);
        // The rows of the lively one arrive.
        // SAFETY: the buffer is ours, and no request of a live connection is under way.
        unsafe { buffer.base().as_ptr().cast::<f32>().write(8.5) };
        let rows = Rows::Buffer { region: &buffer, offset_bytes: 0 };
        // SAFETY: keys and buffer outlive the call.
        unsafe { lively.ps.call(&Request::Put { table: TableTag(0), keys: &[9], rows }) }.expect("a PUT");
        let target = Target::Memory { rows: row.as_mut_ptr(), capacity: row.len() };
        // SAFETY: as above.
        unsafe { lively.ps.call(&Asked::Get { table: TableTag(0), keys: &[9], target }) }.expect("a GET");
        assert_eq!(row[0].to_bits(), 8.5_f32.to_bits());
        assert!(silent.lane.is_usable());
        // The control plane's verdict, as it reaches the poll thread.
        mailbox.drop_client(silent.client, silent.incarnation);
        let released = || matches!(silent.window.claim(RequestHeader::identity(0, 0)), Claim::Execute);
        while !released() {
            std::thread::yield_now();
        }
    });
    println!("{} scans, {} of them empty", mailbox.stats().rounds, mailbox.stats().empty);
    assert_eq!((mailbox.stats().handled.gets, mailbox.stats().handled.puts), (201, 1));
}
