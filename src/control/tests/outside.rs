//! What comes from outside that should not: garbage, malformed calls, too much of everything; and who is not there.

use super::*;
use crate::control::codec::{self, proto};
use crate::control::limits::{FRAME_BYTES_MAX, OFFER_BYTES_MAX};
use crate::control::secret::Proof;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

const PROOF: Proof = Proof([3; 16]);

type Stub = proto::control_client::ControlClient<tonic::transport::Channel>;

/// Talks to the control plane without our client.
fn raw<T>(plane: &ControlPlane, talk: impl AsyncFnOnce(Stub) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let stub = Stub::connect(format!("http://{HOST}:{}", plane.port())).await.unwrap();
        talk(stub).await
    })
}

#[track_caller]
fn assert_refused<T: core::fmt::Debug>(outcome: Result<T, tonic::Status>, reason: Reason, words: &str) {
    let status = outcome.unwrap_err();
    let refusal = codec::refusal(&status).unwrap_or_else(|| panic!("no refusal in {status:?}"));
    assert_eq!(refusal.reason, reason, "{refusal:?}");
    assert!(refusal.message.contains(words), "'{words}' is missing in {refusal:?}");
}

#[test]
fn garbage_on_the_port_hurts_nobody() {
    let plane = plane(1);
    let a = join(&plane, 1, &server(0));
    let mut noise = 1_u64;
    let mut garbage: Vec<Vec<u8>> = (0..40)
        .map(|length| {
            let bytes = (0..length * 97).map(|_| {
                noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                noise.to_le_bytes()[7]
            });
            bytes.collect()
        })
        .collect();
    garbage.push(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n".to_vec());
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    garbage.push(preface.to_vec());
    let with_noise: Vec<Vec<u8>> = garbage.iter().map(|noise| [preface.as_slice(), noise].concat()).collect();
    for bytes in garbage.iter().chain(&with_noise) {
        let mut stream = TcpStream::connect((HOST, plane.port())).unwrap();
        // Refusals in the middle are as good as any.
        drop(stream.write_all(bytes));
        drop(stream.shutdown(std::net::Shutdown::Write));
        drop(stream.read_to_end(&mut Vec::new()));
    }
    a.ready().unwrap();
    let c = join(&plane, 1, &client(0));
    c.wait_servers_ready(LONG).unwrap();
    c.leave();
    while let Some(event) = a.next_event(Duration::ZERO) {
        assert_ne!(event, Event::ControlPlaneLost);
    }
}

#[test]
fn malformed_calls_are_refused_as_such() {
    let plane = plane(1);
    let a = join(&plane, 1, &server(0));
    raw(&plane, async |mut stub| {
        let good = codec::join_message(&identity(1), &client(1), Role::Client(Some(ClientId(1))), PROOF);
        let refused = stub.join(proto::JoinRequest::default()).await;
        assert_refused(refused, Reason::Malformed, "identity");
        let refused = stub.join(proto::JoinRequest { role: None, ..good.clone() }).await;
        assert_refused(refused, Reason::Malformed, "role");
        let refused = stub.join(proto::JoinRequest { incarnation: vec![1; 15], ..good.clone() }).await;
        assert_refused(refused, Reason::Malformed, "16 bytes");
        let refused = stub.join(proto::JoinRequest { proof: Vec::new(), ..good.clone() }).await;
        assert_refused(refused, Reason::Malformed, "a proof has 16 bytes");
        let refused = stub.join(proto::JoinRequest { host: "h".repeat(300), ..good.clone() }).await;
        assert_refused(refused, Reason::TooLarge, "300");
        let large = Identity { layout: "l=1\n".repeat(5000), ..identity(1) };
        let refused = stub.join(codec::join_message(&large, &client(1), Role::Client(None), PROOF)).await;
        assert_refused(refused, Reason::TooLarge, "20000");
        assert_refused(stub.ready(proto::ReadyRequest::default()).await, Reason::Malformed, "session");
        let session = Some(proto::Session { id: 1, incarnation: vec![7; 16] });
        let refused = stub.leave(proto::LeaveRequest { session }).await;
        assert_refused(refused, Reason::UnknownSession, "join again");
    });
    a.ready().unwrap();
}

#[test]
fn oversized_offers_are_refused_on_both_sides() {
    let plane = plane(1);
    let a = join(&plane, 1, &server(0));
    let to = Peer::Client(ClientId(0));
    assert_error(
        a.publish_lanes(to, vec![0; OFFER_BYTES_MAX + 1]),
        Status::InvalidArgument,
        &["client 0", "262145", "262144"],
    );
    a.publish_lanes(to, vec![5; OFFER_BYTES_MAX]).unwrap();
    let c = join(&plane, 1, &client(0));
    assert_eq!(c.get_lanes(a.me(), LONG).unwrap(), vec![5; OFFER_BYTES_MAX]);
    let liar = client(1);
    raw(&plane, async |mut stub| {
        let request = codec::join_message(&identity(1), &liar, liar.role, PROOF);
        let mut stream = stub.join(request).await.unwrap().into_inner();
        let Some(proto::join_reply::Kind::Joined(joined)) = stream.message().await.unwrap().unwrap().kind else {
            panic!("not joined")
        };
        let session = proto::Session { id: joined.session, incarnation: codec::incarnation_bytes(liar.incarnation) };
        let request = |bytes| proto::PublishLanesRequest {
            session: Some(session.clone()),
            to: Some(codec::peer_message(Peer::Server(ShardId(0)))),
            version: 1,
            for_incarnation: Vec::new(),
            offer: vec![0; bytes],
        };
        let refused = stub.publish_lanes(request(OFFER_BYTES_MAX + 1)).await;
        assert_refused(refused, Reason::TooLarge, "262145");
        // Beyond the frame nothing is even looked at.
        let status = stub.publish_lanes(request(FRAME_BYTES_MAX + 1)).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::OutOfRange, "{status:?}");
        assert!(stub.publish_lanes(request(1)).await.is_ok());
    });
    await_event(&a, Event::LanesPublished { from: Peer::Client(ClientId(1)), incarnation: liar.incarnation });
}

#[test]
fn nobody_there_is_said_with_address_and_time() {
    // Bound and not listening any more: nobody else gets it within the test.
    let port = TcpListener::bind((HOST, 0)).unwrap().local_addr().unwrap().port();
    let outcome = ControlClient::join(HOST, port, Duration::from_millis(30), &identity(1), &server(0));
    assert_error(outcome, Status::ControlPlaneUnreachable, &[&format!("{HOST}:{port}"), " ms: ", "refused"]);
    // Somebody is there, but it is no control plane: it never says a word.
    let mute = TcpListener::bind((HOST, 0)).unwrap();
    let port = mute.local_addr().unwrap().port();
    let outcome = ControlClient::join(HOST, port, Duration::from_millis(30), &identity(1), &server(0));
    assert_error(outcome, Status::ControlPlaneUnreachable, &[&format!("{HOST}:{port}")]);
    let outcome = ControlClient::join("no host", 1, LONG, &identity(1), &server(0));
    assert_error(outcome, Status::InvalidArgument, &["'no host'"]);
}

#[test]
fn a_control_plane_may_come_up_after_its_members() {
    let port = TcpListener::bind((HOST, 0)).unwrap().local_addr().unwrap().port();
    std::thread::scope(|scope| {
        let early = scope.spawn(|| ControlClient::join(HOST, port, LONG, &identity(1), &server(0)));
        let plane = ControlPlane::serve(HOST, port, &identity(1)).unwrap();
        let a = early.join().unwrap().unwrap();
        a.probe(LONG).unwrap();
        drop(plane);
    });
}

#[test]
fn a_port_that_is_taken_is_said_to_be() {
    let plane = plane(1);
    let error = ControlPlane::serve(HOST, plane.port(), &identity(1)).unwrap_err();
    assert_eq!(error.os_error, libc::EADDRINUSE);
    assert_error(
        Err::<(), _>(error),
        Status::OsError,
        &[&format!("{HOST}:{}", plane.port()), "taken", "rdma-control-plane-port"],
    );
    // An address of a documentation network, which no machine has.
    assert_error(
        ControlPlane::serve("192.0.2.1", 0, &identity(1)),
        Status::OsError,
        &["192.0.2.1:0", "no address of this machine"],
    );
}

#[test]
fn a_call_that_is_taken_back_frees_its_place() {
    let plane = plane(1);
    let a = join(&plane, 1, &server(0));
    raw(&plane, async |mut stub| {
        let caller = client(1);
        let mut stream =
            stub.join(codec::join_message(&identity(1), &caller, caller.role, PROOF)).await.unwrap().into_inner();
        let Some(proto::join_reply::Kind::Joined(joined)) = stream.message().await.unwrap().unwrap().kind else {
            panic!("not joined")
        };
        let session = proto::Session { id: joined.session, incarnation: codec::incarnation_bytes(caller.incarnation) };
        let barrier = |participants| proto::BarrierRequest {
            session: Some(session.clone()),
            name: "b".to_string(),
            participants,
            timeout_ms: 60_000,
            call: u64::from(participants),
        };
        let mut second = stub.clone();
        tokio::select! {
            biased;
            outcome = stub.barrier(barrier(9)) => panic!("nobody else came: {outcome:?}"),
            // Another count is refused as long as the first call waits, so this says that it does.
            () = async {
                while second.barrier(barrier(1)).await.is_ok() {}
            } => {}
        }
        // The first call was dropped: its barrier goes, and one of another count may begin.
        while stub.barrier(barrier(1)).await.is_err() {}
    });
    a.barrier("b", 1, LONG).unwrap();
}

/// Passes bytes on between a member and the control plane until it is told to keep them, with both connections open:
/// what a cable that was pulled looks like.
struct Proxy {
    port: u16,
    cut: crate::sync::Arc<crate::sync::AtomicBool>,
}

impl Proxy {
    fn before(plane: &ControlPlane) -> Proxy {
        let listener = TcpListener::bind((HOST, 0)).unwrap();
        let proxy = Proxy { port: listener.local_addr().unwrap().port(), cut: crate::sync::Arc::default() };
        let (cut, to) = (proxy.cut.clone(), plane.port());
        std::thread::spawn(move || {
            let inside = listener.accept().unwrap().0;
            let outside = TcpStream::connect((HOST, to)).unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| pass_on(&inside, &outside, &cut));
                pass_on(&outside, &inside, &cut);
            });
        });
        proxy
    }
}

fn pass_on(mut from: &TcpStream, mut to: &TcpStream, cut: &crate::sync::AtomicBool) {
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if !cut.load(Ordering::Relaxed) && to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
}

#[test]
fn a_cable_that_was_pulled_is_noticed_on_both_sides() {
    let plane = plane(1);
    let a = join(&plane, 1, &server(0));
    let proxy = Proxy::before(&plane);
    let far = client(1);
    let behind = ControlClient::join(HOST, proxy.port, LONG, &identity(1), &far).unwrap();
    proxy.cut.store(true, Ordering::Relaxed);
    await_event(&behind, Event::ControlPlaneLost);
    await_event(&a, Event::MemberLeft { peer: behind.me(), incarnation: far.incarnation, died: true });
}
