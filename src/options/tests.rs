//! The bag, the two entries and the rules between options, seen from outside.

use super::*;
use crate::error::{Result, Status};
use proptest::prelude::*;

fn with(pairs: &[(&str, &str)]) -> Options {
    let mut options = Options::new();
    for (name, value) in pairs {
        options.set(name, value).unwrap_or_else(|error| panic!("{name}={value}: {error}"));
    }
    options
}

/// The refusal's status, after checking that its message has all these parts.
fn refused<T: std::fmt::Debug>(result: Result<T>, parts: &[&str]) -> Status {
    let error = result.unwrap_err();
    for part in parts {
        assert!(error.message.contains(part), "{part:?} is not in: {error}");
    }
    error.status
}

fn environment(pairs: &[(&str, &str)]) -> Result<Options> {
    Options::from_variables(pairs.iter().copied())
}

#[test]
fn defaults_make_valid_settings_for_both_sides() {
    for side in [Side::Server, Side::Client, Side::Both] {
        let settings = Options::new().settings(side).unwrap();
        assert_eq!((settings.qps_per_client_per_shard, settings.slots_per_qp, settings.async_depth), (16, 1, 1));
        assert_eq!(settings.wait_timeout_ms, 60_000);
        assert_eq!((settings.control_plane_host.as_str(), settings.control_plane_port), ("127.0.0.1", 25_100));
        assert_eq!(settings.client_id, None);
        assert_eq!(settings.namespace, "default");
        assert!(!settings.lane_rebuild_enabled);
    }
}

/// What the first users of these options were tuned for: a change of one is a change of their deployments.
#[test]
fn defaults_of_queues_and_retries_stay() {
    for (name, default) in [
        ("cq-depth", "4096"),
        ("max-send-wr", "1024"),
        ("rdma-region-bytes", "134217728"),
        ("rdma-ack-timeout", "14"),
        ("rdma-retry-cnt", "7"),
        ("rdma-rnr-retry", "7"),
        ("rdma-rc-inline-bytes", "64"),
    ] {
        let spec = TABLE.iter().find(|spec| spec.name == name).unwrap_or_else(|| panic!("no option {name}"));
        assert_eq!(spec.default, default, "{name}");
    }
    let settings = Options::new().settings(Side::Both).unwrap();
    assert_eq!((settings.cq_depth, settings.max_send_wr, settings.region_bytes), (4096, 1024, 128 << 20));
    assert_eq!((settings.ack_timeout, settings.retry_cnt, settings.rnr_retry, settings.inline_bytes), (14, 7, 7, 64));
}

#[test]
fn a_client_opens_with_the_lanes_that_it_needs_and_one_to_spare() {
    let at_open = |pairs: &[(&str, &str)]| with(pairs).settings(Side::Both).unwrap().lanes_at_open();
    assert_eq!(at_open(&[]), 2);
    assert_eq!(at_open(&[("async-depth", "8")]), 9);
    assert_eq!(at_open(&[("async-depth", "9"), ("slots-per-qp", "4")]), 4);
    assert_eq!(at_open(&[("async-depth", "16")]), 16);
    assert_eq!(at_open(&[("qps-at-open", "5")]), 5);
    assert_eq!(at_open(&[("qps-at-open", "1024")]), 16);
}

#[test]
fn spellings_are_alike() {
    let spellings =
        ["rdma_rc_slots_per_qp", "rdma-rc-slots-per-qp", "slots-per-qp", "slots_per_qp", "rdma_slots-per_qp"];
    for (number, name) in spellings.iter().enumerate() {
        let value = (number + 1).to_string();
        let options = with(&[(name, &value)]);
        assert_eq!(options.get("slots-per-qp").unwrap(), value);
    }
    for (name, get) in [
        ("rdma_wait_spin_loops", "wait_spin_iterations"),
        ("thread_num", "server_rdma_threads"),
        ("num_shards", "num_server_processes"),
        ("rdma_rc_namespace", "rdma-namespace"),
        ("rdma_rc_profile_interval_ms", "profile-interval-ms"),
    ] {
        assert_eq!(with(&[(name, "7")]).get(get).unwrap(), "7");
    }
}

#[test]
fn words_are_alike_in_any_spelling() {
    let settings = with(&[("rdma-get-response-mode", "Direct-SG")]).settings(Side::Client).unwrap();
    assert_eq!(settings.get_response_mode, GetResponseMode::DirectSg);
}

#[test]
fn an_unknown_name_is_refused_with_the_nearest_one() {
    let mut options = Options::new();
    let status = refused(options.set("slots-per-pq", "2"), &["slots-per-pq", "did you mean slots-per-qp?"]);
    assert_eq!(status, Status::UnknownOption);
    assert_eq!(refused(options.set("zebra", "2"), &["zebra", "reclane options"]), Status::UnknownOption);
    assert_eq!(refused(options.get("slot-per-qp"), &["slots-per-qp"]), Status::UnknownOption);
}

#[test]
fn a_bad_value_is_refused_with_name_value_bound_and_source_and_changes_nothing() {
    let mut options = with(&[("slots-per-qp", "3")]);
    let parts = ["slots-per-qp", "flag --slots_per_qp", "1 to 1024"];
    assert_eq!(refused(options.set("slots_per_qp", "many"), &[&parts[..], &["\"many\""]].concat()), Status::OptionType);
    assert_eq!(refused(options.set("slots_per_qp", "0"), &[&parts[..], &["\"0\""]].concat()), Status::OptionBounds);
    assert_eq!(refused(options.set("slots_per_qp", "-4"), &parts), Status::OptionBounds);
    assert_eq!(refused(options.set("slots_per_qp", "99999999999999999999999"), &parts), Status::OptionBounds);
    assert_eq!(refused(options.set("slots_per_qp", ""), &parts), Status::OptionType);
    assert_eq!(refused(options.set("rdma-lane-rebuild-enabled", "maybe"), &["true or false"]), Status::OptionType);
    assert_eq!(refused(options.set("fabric", "tcp"), &["fabric", "shm, verbs"]), Status::OptionBounds);
    assert_eq!(refused(options.set("deployment-id", ""), &["deployment-id"]), Status::OptionBounds);
    assert_eq!(refused(options.set("rdma-namespace", "a/b"), &["rdma-namespace"]), Status::OptionBounds);
    assert_eq!(refused(options.set("log-file", "a\nb"), &["log-file"]), Status::OptionBounds);
    assert_eq!(options.get("slots-per-qp").unwrap(), "3");
}

#[test]
fn names_of_the_past_say_why_they_are_gone() {
    let mut options = Options::new();
    for legacy in LEGACY {
        let name = legacy.name.replace('-', "_");
        assert_eq!(refused(options.set(&name, "1x"), &[legacy.name, legacy.reason]), Status::Unsupported);
    }
    options.set("rdma_transport_mode", "rc_write").unwrap();
}

#[test]
fn what_was_switched_off_in_the_past_may_stay_in_the_environment() {
    let off = [
        ("RECSTORE_RDMA_ADAPTER_PROFILE", "0"),
        ("RECSTORE_RDMA_GET_TRACE", "0"),
        ("RECSTORE_RDMA_GET_TRACE_INTERVAL", "5000"),
    ];
    Options::from_variables(off).unwrap();
    for (name, value) in [
        ("RECSTORE_RDMA_ADAPTER_PROFILE", "1"),
        ("RECSTORE_RDMA_GET_TRACE", "1"),
        ("RECSTORE_RDMA_GET_TRACE_INTERVAL", "often"),
        ("RECSTORE_RDMA_RC_FAKE_GET_MODE", "0"),
    ] {
        assert_eq!(refused(Options::from_variables([(name, value)]), &[name, value]), Status::Unsupported);
    }
}

#[test]
fn contradictions_name_both_sides() {
    type Case<'a> = (Side, &'a [(&'a str, &'a str)], &'a [&'a str]);
    let cases: &[Case<'_>] = &[
        (
            Side::Both,
            &[("async-depth", "17")],
            &["async-depth = 17 (flag --async-depth)", "qps-per-client-per-shard = 16 (default)"],
        ),
        (
            Side::Both,
            &[("rdma-health-stale-ms", "9000")],
            &["rdma-health-stale-ms = 9000", "rdma-health-dead-ms = 9000"],
        ),
        (Side::Both, &[("rdma-heartbeat-interval-ms", "3000")], &["rdma-heartbeat-interval-ms = 3000"]),
        (Side::Both, &[("response-slot-bytes", "64")], &["rdma-rc-response-slot-bytes = 64", "value-size = 128"]),
        (Side::Both, &[("request-slot-bytes", "128")], &["rdma-rc-request-slot-bytes = 128", "value-size = 128"]),
        (Side::Both, &[("rdma-lane-rebuild-poll-ms", "501")], &["rdma-lane-rebuild-poll-max-ms = 500"]),
        (Side::Both, &[("slots-per-qp", "600")], &["max-send-wr = 1024"]),
        (Side::Both, &[("max-send-wr", "5000")], &["cq-depth = 4096"]),
        (Side::Server, &[("global_id", "1")], &["shard-id = 1 (from global-id)", "num-server-processes = 1 (default)"]),
        (Side::Server, &[("shard-id", "2"), ("num-shards", "2")], &["shard-id = 2", "num-server-processes = 2"]),
        (
            Side::Server,
            &[("shard-id", "0"), ("global_id", "1"), ("num-shards", "2")],
            &["global-id = 1", "shard-id = 0"],
        ),
        (
            Side::Server,
            &[("shard-id", "1"), ("num-shards", "2"), ("rdma-control-plane-port", "0")],
            &["rdma-control-plane-port = 0"],
        ),
        (Side::Client, &[("global_id", "0")], &["global-id = 0", "num-server-processes = 1"]),
        (Side::Client, &[("global_id", "1"), ("client-id", "1")], &["global-id = 1", "client-id = 1"]),
        (
            Side::Client,
            &[("client-id", "2"), ("num_client_processes", "2")],
            &["client-id = 2", "num-client-processes = 2"],
        ),
    ];
    for (side, pairs, parts) in cases {
        assert_eq!(refused(with(pairs).settings(*side), parts), Status::OptionConflict, "{pairs:?}");
    }
    for (side, pairs) in [(Side::Client, ("rdma-control-plane-port", "0")), (Side::Both, ("value-size", "130"))] {
        assert_eq!(refused(with(&[pairs]).settings(side), &[pairs.0, pairs.1]), Status::OptionBounds);
    }
    assert_eq!(refused(Options::new().set("rdma-put-protocol-version", "1"), &["from 2 to 2"]), Status::OptionBounds);
}

#[test]
fn the_global_number_says_shard_or_client() {
    let pairs = [("num_server_processes", "2"), ("num_client_processes", "3"), ("global_id", "4")];
    assert_eq!(with(&pairs).settings(Side::Client).unwrap().client_id, Some(2));
    let pairs = [("num_server_processes", "2"), ("global_id", "1")];
    assert_eq!(with(&pairs).settings(Side::Server).unwrap().shard_id, 1);
    let pairs = [("num_server_processes", "2"), ("num_client_processes", "2"), ("global_id", "4")];
    refused(with(&pairs).settings(Side::Client), &["client-id = 2 (from global-id)", "num-client-processes = 2"]);
}

#[test]
fn a_client_beyond_an_uncounted_start_may_join() {
    assert_eq!(with(&[("client-id", "7")]).settings(Side::Client).unwrap().client_id, Some(7));
}

#[test]
fn the_environment_has_old_names_and_ranks() {
    let settings = |pairs| environment(pairs).unwrap().settings(Side::Client).unwrap();
    assert_eq!(settings(&[("RECSTORE_RDMA_RC_SLOTS_PER_QP", "4")]).slots_per_qp, 4);
    assert_eq!(settings(&[("RECLANE_SLOTS_PER_QP", "5"), ("RECSTORE_RDMA_RC_SLOTS_PER_QP", "4")]).slots_per_qp, 5);
    assert_eq!(settings(&[("RECLANE_RDMA_RC_SLOTS_PER_QP", "6")]).slots_per_qp, 6);
    let ranked = settings(&[("LOCAL_RANK", "1"), ("RANK", "5"), ("WORLD_SIZE", "8"), ("LOCAL_WORLD_SIZE", "2")]);
    assert_eq!((ranked.client_id, ranked.num_client_processes), (Some(5), 8));
    let local = settings(&[("LOCAL_RANK", "1"), ("LOCAL_WORLD_SIZE", "2")]);
    assert_eq!((local.client_id, local.num_client_processes), (Some(1), 2));
    let explicit = settings(&[("RANK", "5"), ("RECSTORE_RDMA_OS_CLIENT_INDEX", "0"), ("WORLD_SIZE", "8")]);
    assert_eq!(explicit.client_id, Some(0));
    assert_eq!(settings(&[("PATH", "/bin"), ("RECSTORE_CONFIG", "x.json"), ("RECLANE_TEST_X", "y")]).client_id, None);
}

#[test]
fn every_documented_variable_sets_its_option() {
    for spec in TABLE {
        let mut variables = vec![spec.variable()];
        variables.extend(spec.environment.iter().map(|name| (*name).to_owned()));
        for variable in variables {
            let options = environment(&[(&variable, spec.default)]).unwrap();
            assert!(options.is_given(spec.name).unwrap(), "{variable}");
        }
    }
}

#[test]
fn a_bad_environment_is_refused_with_the_variable() {
    let bad = |name: &str, value: &str, parts: &[&str]| refused(environment(&[(name, value)]), parts);
    let status = bad("RECLANE_SLOT_PER_QP", "1", &["RECLANE_SLOT_PER_QP", "did you mean RECLANE_SLOTS_PER_QP?"]);
    assert_eq!(status, Status::UnknownOption);
    assert_eq!(bad("RECSTORE_RDMA_RC_SLOT", "1", &["RECSTORE_RDMA_RC_SLOT"]), Status::UnknownOption);
    assert_eq!(bad("RECSTORE_RDMA_LOG_LEVEL", "info", &["use RECLANE_LOG_LEVEL"]), Status::UnknownOption);
    assert_eq!(bad("RECSTORE_RDMA_GET_TRACE", "1", &["RECSTORE_RDMA_GET_TRACE", "log-level"]), Status::Unsupported);
    assert_eq!(bad("RECSTORE_RDMA_TRANSPORT_MODE", "brpc", &["rc_write"]), Status::Unsupported);
    assert_eq!(bad("RANK", "first", &["client-id", "environment variable RANK", "first"]), Status::OptionType);
    assert_eq!(bad("RECLANE_SLOTS_PER_QP", "0", &["environment variable RECLANE_SLOTS_PER_QP"]), Status::OptionBounds);
    environment(&[("RECSTORE_RDMA_TRANSPORT_MODE", "rc_write")]).unwrap();
    let twice = [("RECLANE_SLOTS_PER_QP", "1"), ("RECLANE_RDMA_SLOTS_PER_QP", "2")];
    let status = refused(environment(&twice), &["RECLANE_SLOTS_PER_QP", "RECLANE_RDMA_SLOTS_PER_QP", "disagree"]);
    assert_eq!(status, Status::OptionConflict);
}

#[test]
fn a_value_that_is_not_utf8_is_refused() {
    use std::os::unix::ffi::OsStrExt;
    let value = std::ffi::OsStr::from_bytes(b"\xff");
    let result = Options::from_variables([("RECLANE_LOG_FILE", value)]);
    assert_eq!(refused(result, &["RECLANE_LOG_FILE", "UTF-8"]), Status::NotUtf8);
    Options::from_variables([("SOMETHING_ELSE", value)]).unwrap();
}

#[test]
fn the_entries_do_not_mix() {
    let mut options = environment(&[("RECLANE_SLOTS_PER_QP", "4")]).unwrap();
    assert_eq!(options.entry(), Entry::OpLayer);
    assert_eq!(refused(options.set("slots-per-qp", "2"), &["op-layer", "slots-per-qp"]), Status::WrongState);
    assert_eq!(options.get("slots-per-qp").unwrap(), "4");
    assert_eq!(refused(options.settings(Side::Server), &["op-layer", "server"]), Status::WrongState);
    assert_eq!(Options::new().entry(), Entry::PetPs);
}

proptest! {
    #[test]
    fn any_name_and_value_is_taken_or_refused(name in "\\PC{0,40}", value in "\\PC{0,40}") {
        let mut options = Options::new();
        let _ = options.set(&name, &value);
        let _ = options.get(&name);
        prop_assert!(options.settings(Side::Both).is_ok());
    }

    #[test]
    fn any_value_of_any_option_is_taken_or_refused(
        pairs in proptest::collection::vec((0..TABLE.len(), "[-+0-9a-z_.\u{0}-\u{ff}]{0,24}"), 0..12),
    ) {
        let mut options = Options::new();
        for (at, value) in &pairs {
            let before = options.get(TABLE[*at].name).unwrap();
            if options.set(TABLE[*at].name, value).is_err() {
                prop_assert_eq!(options.get(TABLE[*at].name).unwrap(), before);
            }
        }
        for side in [Side::Server, Side::Client, Side::Both] {
            if let Ok(settings) = options.settings(side) {
                prop_assert!(layout_difference(&settings.layout(), &settings.layout()).is_none());
            }
        }
    }

    #[test]
    fn numbers_within_bounds_come_back(pairs in proptest::collection::vec((0..TABLE.len(), any::<u64>()), 1..8)) {
        let mut options = Options::new();
        for (at, raw) in pairs {
            let (Kind::Number { min, max } | Kind::OptionalNumber { min, max }) = TABLE[at].kind else { continue };
            let number = if max - min == u64::MAX { raw } else { min + raw % (max - min + 1) };
            options.set(TABLE[at].field, &number.to_string()).unwrap();
            prop_assert_eq!(options.get(TABLE[at].name).unwrap(), number.to_string());
        }
    }

    #[test]
    fn any_environment_is_taken_or_refused(
        pairs in proptest::collection::vec(("(RECLANE_|RECSTORE_RDMA_|)[A-Z_]{0,20}", "\\PC{0,20}"), 0..6),
    ) {
        let _ = Options::from_variables(pairs);
    }
}
