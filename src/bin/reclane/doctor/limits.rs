//! What the options ask of a device against what it has at most.

use super::finding::Finding;
use super::needs::{Needs, human};
use super::system::LATER_LANES;
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
    let (open, needs) = (Needs::at_open(settings), Needs::of(settings));
    let faults = faults(limits, settings, &needs);
    if faults.is_empty() {
        let what = format!(
            "{device}: {} queue pairs of at most {}, {} memory regions of at most {}, the largest {}",
            needs.queue_pairs,
            limits.queue_pairs,
            needs.registrations,
            limits.regions,
            human(needs.largest_region_bytes)
        );
        return Finding::ok(check, what);
    }
    let words = |faults: &[Fault]| faults.iter().map(|(what, _)| what.as_str()).collect::<Vec<_>>().join("; ");
    let options = faults.iter().map(|(_, option)| *option).collect::<Vec<_>>().join(", ");
    let mend = format!("lower {options}; for queue pairs also num-client-processes, or spread shards over more hosts");
    let found = format!("{device}: needed are {}", words(&faults));
    let at_open = self::faults(limits, settings, &open);
    if at_open.is_empty() {
        return Finding::warning(check, format!("{found}, with all lanes; {} queue pairs to open", open.queue_pairs))
            .means(LATER_LANES)
            .mend(mend);
    }
    Finding::error(check, format!("{found}; to open {}", words(&at_open)))
        .means("lanes cannot be made: opening fails, or clients beyond the limit are not let in")
        .mend(mend)
}

/// What is needed beyond the limit, and the option that lowers it.
type Fault = (String, &'static str);

fn faults(limits: &Limits, settings: &Settings, needs: &Needs) -> Vec<Fault> {
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
    let mut faults: Vec<Fault> =
        short.map(|(what, needed, most, option)| (format!("{needed} {what} of at most {most}"), *option)).collect();
    let largest = needs.largest_region_bytes;
    if limits.region_bytes > 0 && largest > limits.region_bytes {
        let what = format!("a memory region of {largest} bytes, of at most {}", limits.region_bytes);
        faults.push((what, "rdma-region-bytes, or the slots' bytes"));
    }
    faults
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
        let few = Limits { queue_pairs: 131_071, ..AMPLE };
        let words = ["1048576 queue pairs of at most 131071", "to open 131072 queue", "qps-per-client-per-shard"];
        short(few, &[clients], &words);
        short(Limits { work_requests: 512, ..AMPLE }, &[], &["1024 work requests", "max-send-wr"]);
        short(Limits { completions: 1000, ..AMPLE }, &[], &["4096 places", "cq-depth"]);
        short(Limits { completion_queues: 7, ..AMPLE }, &[("num-shards", "4")], &["8 completion queues"]);
        short(Limits { regions: 3, ..AMPLE }, &[], &["memory regions of at most 3", "rdma-region-bytes"]);
        short(Limits { region_bytes: 1 << 20, ..AMPLE }, &[], &["of at most 1048576", "rdma-region-bytes"]);
    }
    #[test]
    fn what_suffices_to_open_and_not_for_all_lanes_is_a_warning_with_both_numbers() {
        let clients = ("num-client-processes", "65536");
        let finding = judged(AMPLE, &[clients]);
        assert_eq!(finding.level, Level::Warning, "{finding:?}");
        let words = "needed are 1048576 queue pairs of at most 131072, with all lanes; 131072 queue pairs to open";
        assert!(finding.found.contains(words), "{finding:?}");
        assert!(finding.meaning.contains("clients open") && finding.mend.contains("qps-per-client-per-shard"));
        assert_eq!(judged(AMPLE, &[clients, ("qps-at-open", "1024")]).level, Level::Error);
    }
}
