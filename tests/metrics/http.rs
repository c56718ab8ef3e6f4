//! Prometheus' text over HTTP, and what else may come to that port.

use crate::support::{Deployment, Process};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

fn ask(port: u16, request: &[u8]) -> String {
    let mut connection = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    // It may close while this is being written.
    let _ = connection.write_all(request);
    let mut answer = Vec::new();
    let _ = connection.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// The values of a text that is what the exposition format allows: each sample follows the TYPE of its metric, labels are
/// quoted, values are numbers, histograms have rising buckets up to +Inf.
fn parse(text: &str) -> BTreeMap<String, f64> {
    let (mut values, mut kinds, mut finished) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
    let mut current = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a name and a type");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert!(finished.insert(name.to_owned()), "{name} comes twice");
            kinds.insert(name.to_owned(), kind.to_owned());
            current = name.to_owned();
        } else if !line.starts_with("# HELP ") {
            let (series, value) = line.rsplit_once(' ').expect("a value");
            let name = series.split('{').next().expect("a name");
            let base = match kinds[&current].as_str() {
                "histogram" => name.trim_end_matches("_bucket").trim_end_matches("_sum").trim_end_matches("_count"),
                _ => name,
            };
            assert_eq!(base, current, "{line} stands under the TYPE of another one");
            if let Some((_, labels)) = series.split_once('{') {
                for label in labels.strip_suffix('}').expect("closed").split(',') {
                    let (key, quoted) = label.split_once('=').expect("key=value");
                    let inner = quoted.strip_prefix('"').and_then(|q| q.strip_suffix('"')).expect("quoted");
                    assert!(!key.is_empty() && !inner.contains('"'), "{line}");
                }
            }
            assert!(
                values.insert(series.to_owned(), value.parse().expect("a number")).is_none(),
                "{series} comes twice"
            );
        }
    }
    values
}

#[test]
fn prometheus_reads_it_and_nonsense_does_no_harm() {
    let options = [("metrics-port", "0"), ("metrics-sample-every", "1"), ("shared-reads", "off")];
    let mut deployment = Deployment::start(1, &options);
    let mut client = Process::start("client", &deployment.changes);
    client.hear();
    assert_eq!((client.ask("put 2 10"), client.ask("get 9 10")), ("done".into(), "done".into()));
    let port = u16::try_from(client.number("port")).expect("a port");
    let answer = ask(port, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("text/plain; version=0.0.4"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
    let values = parse(body);
    assert_eq!(values["reclane_client_requests_total{shard=\"0\",op=\"get\"}"], 9.0);
    let bucket = |le: &str| values[&format!("reclane_client_latency_seconds_bucket{{op=\"get\",le=\"{le}\"}}")];
    assert!(bucket("0.000000128") <= bucket("17.179869184") && bucket("17.179869184") <= bucket("+Inf"));
    assert_eq!(bucket("+Inf"), values["reclane_client_latency_seconds_count{op=\"get\"}"]);
    assert!(values["reclane_client_latency_seconds_sum{op=\"get\"}"] > 0.0);

    let server = u16::try_from(deployment.servers[0].number("port")).expect("a port");
    let garbage: Vec<u8> = (0..20_000_u32).map(|n| (n * 7 % 251) as u8).collect();
    for port in [port, server] {
        assert!(ask(port, b"GET /nothing HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
        assert!(ask(port, b"DELETE /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
        assert!(ask(port, b"\x16\x03\x01\x02\r\n\r\n").starts_with("HTTP/1.1 400"));
        ask(port, &garbage);
        // One that says nothing, and one that goes at once.
        let silent = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        TcpStream::connect(("127.0.0.1", port)).expect("it listens").shutdown(Shutdown::Both).expect("a connection");
        let head = ask(port, b"HEAD /metrics HTTP/1.1\r\n\r\n");
        assert!(head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n"), "{head}");
        drop(silent);
    }
    let text = ask(server, b"GET /metrics HTTP/1.1\r\n\r\n");
    let values = parse(text.split_once("\r\n\r\n").expect("a body").1);
    assert_eq!(values["reclane_server_requests_total{op=\"get\"}"], 9.0);
    assert_eq!(client.ask("get 1 1"), "done");
}

#[test]
fn a_port_that_is_taken_is_an_error_that_names_it() {
    let deployment = Deployment::start(1, &[]);
    let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let port = taken.local_addr().expect("an address").port().to_string();
    let changes = crate::support::with(&deployment.changes, "metrics-port", &port);
    let settings = crate::support::settings(reclane::options::Side::Client, &changes);
    let error = reclane::engine::Client::open(&settings).expect_err("the port is taken");
    assert!(error.message.contains(&port) && error.message.contains("metrics-port"), "{error}");
}
