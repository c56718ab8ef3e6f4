//! What the options ask of a device against what it has at most.

use super::finding::Finding;
use super::needs::{Needs, human};
use reclane::options::Settings;

/// What a device has at most; 0 or less where it does not know.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub queue_pairs: i64,
    pub work_requests: i64,
    pub completion_queues: i64,
    pub completions: i64,
    pub regions: i64,
    pub region_bytes: u64,
}

/// The limits of a device that the options may choose, one finding each; None: libibverbs does not tell.
#[cfg(feature = "verbs")]
pub fn check(settings: &Settings) -> Vec<Finding> {
    let devices = reclane::fabric::verbs::devices().unwrap_or_default();
    let wanted = devices.iter().filter(|device| settings.device.is_empty() || device.name == settings.device);
    let told = wanted.filter_map(|device| {
        let limits = device.limits?;
        let limits = Limits {
            queue_pairs: limits.queue_pairs.into(),
            work_requests: limits.work_requests.into(),
            completion_queues: limits.completion_queues.into(),
            completions: limits.completions.into(),
            regions: limits.regions.into(),
            region_bytes: limits.region_bytes,
        };
        Some(judge(&device.name, &limits, settings))
    });
    told.collect()
}

#[cfg(not(feature = "verbs"))]
pub fn check(_settings: &Settings) -> Vec<Finding> {
    Vec::new()
}

/// The same, of limits that are known. Pure.
pub fn judge(device: &str, limits: &Limits, settings: &Settings) -> Finding {
    let check = "device limits";
    let needs = Needs::of(settings);
    let queues = 2 * u64::from(settings.server_threads) * u64::from(settings.coroutines_per_thread);
    let queues = queues.max(2 * u64::from(settings.num_shards));
    let wanted = [
        ("queue pairs", needs.queue_pairs, limits.queue_pairs, "qps-per-client-per-shard"),
        ("work requests in a send queue", u64::from(settings.max_send_wr), limits.work_requests, "max-send-wr"),
        ("completion queues", queues, limits.completion_queues, "server-rdma-threads"),
        ("places in a completion queue", u64::from(settings.cq_depth), limits.completions, "cq-depth"),
        (
            "memory regions",
            needs.registrations,
            limits.regions,
            "rdma-region-bytes is to be larger; else lower qps-per-client-per-shard",
        ),
    ];
    let short = wanted.iter().filter(|(_, needed, most, _)| *most > 0 && i128::from(*needed) > i128::from(*most));
    let mut faults: Vec<(String, &str)> =
        short.map(|(what, needed, most, option)| (format!("{needed} {what} of at most {most}"), *option)).collect();
    let largest = needs.largest_region_bytes;
    if limits.region_bytes > 0 && largest > limits.region_bytes {
        let what = format!("a memory region of {largest} bytes, of at most {}", limits.region_bytes);
        faults.push((what, "rdma-region-bytes, or the slots' bytes"));
    }
    if faults.is_empty() {
        let what = format!(
            "{device}: {} queue pairs of at most {}, {} memory regions of at most {}, the largest {}",
            needs.queue_pairs,
            limits.queue_pairs,
            needs.registrations,
            limits.regions,
            human(largest)
        );
        return Finding::ok(check, what);
    }
    let found = faults.iter().map(|(what, _)| what.as_str()).collect::<Vec<_>>().join("; ");
    let options = faults.iter().map(|(_, option)| *option).collect::<Vec<_>>().join(", ");
    Finding::error(check, format!("{device}: needed are {found}"))
        .means("lanes cannot be made: opening fails, or clients beyond the limit are not let in")
        .mend(format!("lower {options}; for queue pairs also num-client-processes, or spread shards over more hosts"))
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;
    use reclane::options::{Options, Side};

    const AMPLE: Limits = Limits {
        queue_pairs: 131_072,
        work_requests: 32_768,
        completion_queues: 65_536,
        completions: 4_194_303,
        regions: 16_777_216,
        region_bytes: u64::MAX,
    };

    fn judged(limits: Limits, pairs: &[(&str, &str)]) -> Finding {
        let mut options = Options::new();
        options.set("fabric", "verbs").unwrap();
        pairs.iter().for_each(|(name, value)| options.set(name, value).unwrap());
        judge("d0", &limits, &options.settings(Side::Both).unwrap())
    }

    #[test]
    fn what_fits_is_told_with_both_numbers() {
        let fine = judged(AMPLE, &[("num-client-processes", "8")]);
        assert_eq!(fine.level, Level::Ok, "{fine:?}");
        assert!(fine.found.starts_with("d0: 128 queue pairs of at most 131072"), "{}", fine.found);
        // What a device does not know is not held against the options.
        let silent = Limits { queue_pairs: 0, work_requests: -1, ..AMPLE };
        assert_eq!(judged(silent, &[]).level, Level::Ok);
    }

    #[test]
    fn each_limit_is_named_with_its_option() {
        let short = |limits: Limits, pairs: &[(&str, &str)], words: &[&str]| {
            let finding = judged(limits, pairs);
            assert_eq!(finding.level, Level::Error, "{finding:?}");
            for word in words {
                assert!(finding.found.contains(word) || finding.mend.contains(word), "'{word}' is not in {finding:?}");
            }
        };
        let clients = ("num-client-processes", "65536");
        short(AMPLE, &[clients], &["1048576 queue pairs of at most 131072", "qps-per-client-per-shard"]);
        short(Limits { work_requests: 512, ..AMPLE }, &[], &["1024 work requests", "max-send-wr"]);
        short(Limits { completions: 1000, ..AMPLE }, &[], &["4096 places", "cq-depth"]);
        short(Limits { completion_queues: 7, ..AMPLE }, &[("num-shards", "4")], &["8 completion queues"]);
        short(Limits { regions: 3, ..AMPLE }, &[], &["memory regions of at most 3", "rdma-region-bytes"]);
        short(Limits { region_bytes: 1 << 20, ..AMPLE }, &[], &["of at most 1048576", "rdma-region-bytes"]);
    }
}
