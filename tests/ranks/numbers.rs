//! What a rank tells of itself in numbers: by name, as text, to who looks at the deployment, and in a file.

use crate::support::{ALL, PATIENCE, at, end, job, options, read, settings, with, write};
use reclane::control::overview::Observer;
use reclane::control::{Secret, Spectator};
use reclane::engine::Rank;
use reclane::observe::directory;
use std::path::PathBuf;

/// A directory that goes with its test.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn number(rank: &Rank, name: &str) -> u64 {
    rank.metric(name).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn operations_lanes_and_regions_are_counted() {
    let ranks = job(&options(2), 2);
    let region = ranks[0].open_region(3, 8192, ALL).expect("a region");
    assert_eq!(number(&ranks[1], "reclane_rank_lanes{purpose=\"data\",state=\"idle\"}"), 2);
    for _ in 0..5 {
        write(&ranks[1], at(0, 3, 0), &[7; 24]).expect("a write");
    }
    read(&ranks[1], at(0, 3, 0), 100).expect("a read");
    ranks[1].fetch_add(at(0, 3, 128), 1).expect("an atomic");
    ranks[1].fetch_add_once(at(0, 3, 136), 1).expect("an atomic");
    let by_op = |op: &str| number(&ranks[1], &format!("reclane_rank_operations_total{{op=\"{op}\"}}"));
    assert_eq!((by_op("write"), by_op("read"), by_op("fetch_add"), by_op("compare_swap")), (5, 1, 1, 0));
    assert_eq!(number(&ranks[1], "reclane_rank_operation_bytes_total{op=\"write\"}"), 5 * 24);
    assert_eq!(number(&ranks[1], "reclane_rank_lanes{state=\"connected\"}"), 2, "data and atomics, to one peer");
    assert_eq!(number(&ranks[1], "reclane_rank_lane_connections_total"), 2);
    assert_eq!(number(&ranks[1], "reclane_rank_operations_under_way"), 0);
    assert!(number(&ranks[1], "reclane_rank_operations_under_way_max") > 0);
    assert_eq!((number(&ranks[0], "reclane_rank_regions"), number(&ranks[0], "reclane_rank_region_bytes")), (1, 8192));
    assert_eq!(number(&ranks[0], "reclane_rank_guest_lanes"), 2);
    assert_eq!(number(&ranks[0], "reclane_rank_atomics_executed_total"), 1);
    assert_eq!(number(&ranks[0], "reclane_rank_peers_max"), 1);
    // A lane that is lost comes back, and is counted again.
    ranks[1].break_lanes(0).expect("a rank");
    write(&ranks[1], at(0, 3, 0), &[7; 8]).expect("a write over a new connection");
    assert_eq!(number(&ranks[1], "reclane_rank_lane_connections_total{purpose=\"data\"}"), 2);
    let hold = ranks[1].hold(PATIENCE, PATIENCE).expect("nothing is under way");
    assert_eq!(number(&ranks[1], "reclane_rank_held"), 1);
    assert!(ranks[1].release(hold));
    assert_eq!(number(&ranks[1], "reclane_rank_held"), 0);
    assert!(ranks[1].metrics_text().contains("reclane_info{role=\"rank\",number=\"1\""));
    assert!(ranks[1].metric("reclane_rank_nothing").is_err());
    drop(region);
    end(ranks);
}

#[test]
fn who_looks_at_the_job_is_told_and_finds_a_file() {
    let folder = Folder(std::env::temp_dir().join(format!("reclane-ranks-{}", std::process::id())));
    std::fs::create_dir_all(&folder.0).expect("a directory");
    let options = with(&options(2), "metrics-directory", folder.0.display());
    let ranks = job(&options, 2);
    let region = ranks[0].open_region(3, 4096, ALL).expect("a region");
    write(&ranks[1], at(0, 3, 0), &[7; 8]).expect("a write");
    let settings = settings(&options);
    let secret = Secret::read("").expect("no token");
    let observer = Observer { deployment_id: settings.deployment_id, namespace: settings.namespace, secret };
    let port = ranks[0].control_plane_port();
    let mut spectator = Spectator::new(&settings.control_plane_host, port, observer, PATIENCE).expect("a spectator");
    let figures = loop {
        let overview = spectator.look().expect("an overview");
        let said = overview.members.iter().filter_map(|member| member.report.clone()).collect::<Vec<_>>();
        if said.len() == 2 && overview.events.iter().any(|event| event.is_said && event.what.contains("rank_ready")) {
            break said.into_iter().flat_map(|report| report.figures).collect::<Vec<_>>();
        }
        std::thread::yield_now();
    };
    let operations: u64 = figures.iter().filter(|(name, _)| name == "operations").map(|(_, value)| value).sum();
    assert_eq!(operations, 1, "{figures:?}");
    let files = directory::list(&folder.0).expect("a directory");
    assert_eq!(files.len(), 2);
    let named = |name: &str| {
        files.iter().filter_map(|(_, file)| file.as_ref().ok()).any(|f| f.samples.iter().any(|s| s.name == name))
    };
    assert!(named("reclane_rank_operations_total"));
    drop(region);
    end(ranks);
    assert!(directory::list(&folder.0).expect("a directory").is_empty(), "closing takes the files away");
}
