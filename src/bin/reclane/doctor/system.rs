//! The host itself: limits, memory, processors, kernel settings.

use super::finding::Finding;
use super::needs::{Needs, human};
use super::tree::{Tree, chosen, field};
use reclane::options::{FabricKind, HugePages, Settings};

/// Everything about the host that files tell.
pub fn check(tree: &Tree, settings: &Settings) -> Vec<Finding> {
    let (open, needs) = (Needs::at_open(settings), Needs::of(settings));
    let verbs = settings.fabric == FabricKind::Verbs;
    let mut findings = vec![memlock(tree, &open, &needs, verbs), files(tree, &needs), memory(tree, &open, &needs)];
    findings.push(huge_pages(tree, settings, &open, &needs));
    findings.extend(transparent(tree));
    findings.extend(overcommit(tree));
    findings.extend(mappings(tree, &needs));
    findings.extend(memfd_policy(tree));
    findings.extend(cores(tree, &needs));
    findings.extend(frequency(tree));
    findings.extend(numa_balancing(tree));
    findings.push(fork(tree, verbs));
    findings
}

/// A limit of this process; `u64::MAX` for none.
fn limit(tree: &Tree, name: &str) -> Option<(u64, u64)> {
    let text = tree.text("proc/self/limits")?;
    let mut words = field(&text, name)?.split_whitespace();
    let mut number = || match words.next()? {
        "unlimited" => Some(u64::MAX),
        word => word.parse().ok(),
    };
    Some((number()?, number()?))
}

/// Bit of CAP_IPC_LOCK: who has it is not bound by the limit.
const CAP_IPC_LOCK: u32 = 14;

fn may_lock_all(tree: &Tree) -> bool {
    let status = tree.text("proc/self/status").unwrap_or_default();
    let effective = field(&status, "CapEff").and_then(|word| u64::from_str_radix(word, 16).ok());
    effective.is_some_and(|bits| bits >> CAP_IPC_LOCK & 1 == 1)
}

/// What it means when there is enough for the lanes that clients open with, and not for all.
pub const LATER_LANES: &str =
    "clients open, and lanes that requests need later cannot be connected: requests wait for those that there are";

fn memlock(tree: &Tree, open: &Needs, needs: &Needs, verbs: bool) -> Finding {
    let check = "memlock";
    let Some((soft, hard)) = limit(tree, "Max locked memory") else {
        return unknown(check, "the limit of locked memory", "proc/self/limits");
    };
    let now = if soft == u64::MAX { "no limit".to_owned() } else { format!("limit {soft} bytes ({})", human(soft)) };
    if !verbs {
        return Finding::ok(check, format!("{now}; fabric=shm locks none"));
    }
    let needed = needs.locked_bytes;
    let what = format!(
        "{now}, needed {} bytes ({}) to open and {needed} bytes ({}) with all lanes, for slots, and the tables when rows are sent from them",
        open.locked_bytes,
        human(open.locked_bytes),
        human(needed)
    );
    if soft >= needed {
        return Finding::ok(check, what);
    }
    if may_lock_all(tree) {
        return Finding::ok(check, format!("{what}; this process has CAP_IPC_LOCK, so the limit does not bind it"));
    }
    let kib = needed.div_ceil(1024);
    let mend = if hard >= needed {
        format!("ulimit -l {kib}")
    } else {
        format!(
            "as root: prlimit --pid $$ --memlock={needed}; for good: '* - memlock unlimited' in /etc/security/limits.conf, LimitMEMLOCK=infinity in a systemd unit, --ulimit memlock=-1 in a container"
        )
    };
    if soft >= open.locked_bytes {
        return Finding::warning(check, what).means(LATER_LANES).mend(mend);
    }
    Finding::error(check, what).means("memory cannot be registered with the device: opening fails").mend(mend)
}

fn unknown(check: &'static str, what: &str, file: &str) -> Finding {
    Finding::warning(check, format!("{what} cannot be read"))
        .means(format!("/{file} is missing or has another form"))
        .mend(format!("mount it: ls -l /{file}"))
}

fn files(tree: &Tree, needs: &Needs) -> Finding {
    let check = "open files";
    let Some((soft, hard)) = limit(tree, "Max open files") else {
        return unknown(check, "the limit of open files", "proc/self/limits");
    };
    let what = format!("limit {soft}, needed about {}", needs.files);
    if soft >= needs.files {
        return Finding::ok(check, what);
    }
    let mend = if hard >= needs.files { "ulimit -n" } else { "as root: prlimit --pid $$ --nofile=" };
    let space = if mend.ends_with('=') { "" } else { " " };
    Finding::error(check, what)
        .means("clients beyond the limit are not let in")
        .mend(format!("{mend}{space}{}", needs.files))
}

/// Bytes of a line of /proc/meminfo.
pub fn meminfo(tree: &Tree, key: &str) -> Option<u64> {
    let text = tree.text("proc/meminfo")?;
    let mut words = field(&text, key)?.split_whitespace();
    let number: u64 = words.next()?.parse().ok()?;
    Some(if words.next() == Some("kB") { number.saturating_mul(1024) } else { number })
}

fn memory(tree: &Tree, open: &Needs, needs: &Needs) -> Finding {
    let check = "memory";
    let Some(available) = meminfo(tree, "MemAvailable") else {
        return unknown(check, "the available memory", "proc/meminfo");
    };
    let group = cgroup(tree, "memory.max").and_then(|text| text.parse::<u64>().ok());
    let least = group.map_or(available, |group| group.min(available));
    let bound = group.map_or(String::new(), |group| format!(", control group at most {}", human(group)));
    let what = format!(
        "{} available{bound}; slots need {} to open and {} with all lanes, and tables come on top",
        human(available),
        human(open.slot_bytes),
        human(needs.slot_bytes)
    );
    if least / 2 >= needs.slot_bytes {
        return Finding::ok(check, what);
    }
    let finding = if least < open.slot_bytes { Finding::error(check, what) } else { Finding::warning(check, what) };
    finding
        .means("slots take memory, at the latest when clients use all of them: qps-per-client-per-shard * slots-per-qp * the slot bytes, for each peer")
        .mend("lower qps-per-client-per-shard, rdma-rc-request-slot-bytes or rdma-rc-response-slot-bytes, on both ends alike")
}

/// A file of this process's control group (version 2).
fn cgroup(tree: &Tree, file: &str) -> Option<String> {
    let text = tree.text("proc/self/cgroup")?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::"))?;
    // A path is the kernel's; one that climbs is not.
    if path.contains("..") {
        return None;
    }
    tree.text(&format!("sys/fs/cgroup/{}/{file}", path.trim_matches('/')))
}

fn huge_pages(tree: &Tree, settings: &Settings, open: &Needs, needs: &Needs) -> Finding {
    let check = "huge pages";
    let size = meminfo(tree, "Hugepagesize").unwrap_or(2 << 20).max(1);
    let (total, free) = (meminfo(tree, "HugePages_Total").unwrap_or(0), meminfo(tree, "HugePages_Free").unwrap_or(0));
    let what = format!("{free} of {total} pages of {} are free; huge-pages={}", human(size), settings.huge_pages);
    let needed = needs.slot_bytes.div_ceil(size);
    if free >= needed || settings.huge_pages != HugePages::On {
        return Finding::ok(check, what);
    }
    let mend = format!("sysctl vm.nr_hugepages={}", total.saturating_add(needed - free));
    let at_open = open.slot_bytes.div_ceil(size);
    let what = format!("{what}; slots need {at_open} to open and {needed} with all lanes");
    if free >= at_open {
        return Finding::warning(check, what).means(LATER_LANES).mend(mend);
    }
    Finding::error(check, what).means("huge-pages=on takes no others: opening fails").mend(mend)
}

fn transparent(tree: &Tree) -> Option<Finding> {
    let check = "transparent huge pages";
    let folder = "sys/kernel/mm/transparent_hugepage";
    let text = tree.line(&format!("{folder}/enabled"))?;
    let word = chosen(&text)?.to_owned();
    let shmem = tree.line(&format!("{folder}/shmem_enabled"));
    let shmem = shmem.as_deref().and_then(chosen).unwrap_or("unknown");
    let what = format!("enabled is {word}, shmem_enabled is {shmem}");
    Some(if word == "never" {
        Finding::warning(check, what)
            .means("tables lie on small pages, and random rows take up to twice as long")
            .mend("echo madvise > /sys/kernel/mm/transparent_hugepage/enabled")
    } else {
        Finding::ok(check, what)
    })
}

fn overcommit(tree: &Tree) -> Option<Finding> {
    let check = "overcommit";
    let mode = tree.number("proc/sys/vm/overcommit_memory")?;
    let what = format!("vm.overcommit_memory is {mode}");
    Some(if mode == 2 {
        Finding::warning(check, what)
            .means("the kernel promises only memory that it has: large tables, which are mapped first and filled later, can be refused")
            .mend("sysctl vm.overcommit_memory=0")
    } else {
        Finding::ok(check, what)
    })
}

fn mappings(tree: &Tree, needs: &Needs) -> Option<Finding> {
    let count = tree.number("proc/sys/vm/max_map_count")?;
    let what = format!("vm.max_map_count is {count}, needed about {}", needs.mappings);
    Some(if count >= needs.mappings {
        Finding::ok("mappings", what)
    } else {
        Finding::error("mappings", what)
            .means("memory of peers beyond that cannot be mapped")
            .mend(format!("sysctl vm.max_map_count={}", needs.mappings))
    })
}

fn memfd_policy(tree: &Tree) -> Option<Finding> {
    let policy = tree.number("proc/sys/vm/memfd_noexec")?;
    let what = format!("vm.memfd_noexec is {policy}");
    Some(if policy >= 2 {
        Finding::error("memfd policy", what)
            .means(
                "the kernel refuses files in memory that do not ask to be without execution, and fabric=shm makes such",
            )
            .mend("sysctl vm.memfd_noexec=1")
    } else {
        Finding::ok("memfd policy", what)
    })
}

/// How many processors a list like `0-3,8` names.
fn count_list(text: &str) -> Option<u64> {
    let mut count = 0_u64;
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u64, u64) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        count = count.saturating_add(last.checked_sub(first)?.saturating_add(1));
    }
    Some(count)
}

fn cores(tree: &Tree, needs: &Needs) -> Option<Finding> {
    let check = "cores";
    let status = tree.text("proc/self/status")?;
    let cores = count_list(field(&status, "Cpus_allowed_list")?)?;
    let online = tree.text("sys/devices/system/cpu/online").and_then(|text| count_list(&text)).unwrap_or(cores);
    let quota = cgroup(tree, "cpu.max").and_then(|text| {
        let (quota, period) = text.split_once(' ')?;
        Some(quota.parse::<u64>().ok()? / period.parse::<u64>().ok()?.max(1))
    });
    let usable = quota.map_or(cores, |quota| quota.min(cores));
    let bound = quota.map_or(String::new(), |quota| format!(", control group gives the time of {quota}"));
    let what = format!(
        "{cores} of {online} may be used{bound}; a server and a client here spin on {} threads",
        needs.spinning
    );
    Some(if usable >= needs.spinning {
        Finding::ok(check, what)
    } else {
        Finding::warning(check, what)
            .means("threads that wait for each other share a core: microseconds become milliseconds under load")
            .mend("lower server-rdma-threads or rdma-rc-server-get-workers, widen the affinity (taskset -pc 0-N $$), or raise cpu.max")
    })
}

fn frequency(tree: &Tree) -> Option<Finding> {
    let governor = tree.line("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")?;
    let what = format!("the frequency governor of core 0 is {governor}");
    Some(if governor == "powersave" && !tree.exists("sys/devices/system/cpu/intel_pstate") {
        Finding::warning("frequency", what)
            .means("cores stay slow under short bursts of work")
            .mend("cpupower frequency-set -g performance")
    } else {
        Finding::ok("frequency", what)
    })
}

fn numa_balancing(tree: &Tree) -> Option<Finding> {
    let on = tree.number("proc/sys/kernel/numa_balancing")? != 0;
    let nodes = tree.text("sys/devices/system/node/online").and_then(|text| count_list(&text)).unwrap_or(1);
    let what = format!("{nodes} NUMA nodes, kernel.numa_balancing is {}", u8::from(on));
    Some(if on && nodes > 1 {
        Finding::warning("numa balancing", what)
            .means("the kernel unmaps pages to see who uses them, and requests wait for the faults")
            .mend("sysctl kernel.numa_balancing=0, and bind each process: numactl --cpunodebind=N --membind=N")
    } else {
        Finding::ok("numa balancing", what)
    })
}

/// First kernel that copies pinned pages for a forked child.
const COPY_ON_FORK: (u32, u32) = (5, 12);

fn fork(tree: &Tree, verbs: bool) -> Finding {
    let check = "fork safety";
    let release = tree.line("proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|word| word.parse::<u32>().ok());
    let Some(version) = numbers.next().zip(numbers.next()) else {
        return unknown(check, "the kernel's version", "proc/sys/kernel/osrelease");
    };
    let what = format!("kernel {release}");
    if version >= COPY_ON_FORK {
        return Finding::ok(check, format!("{what} copies pinned pages for a forked child; the child may only exec"));
    }
    let finding = if verbs { Finding::warning(check, what) } else { Finding::ok(check, what) };
    finding
        .means("after a fork the parent can lose pages that the device still writes")
        .mend("export RDMAV_FORK_SAFE=1 for programs that fork, or take kernel 5.12 or newer")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_counted() {
        assert_eq!(count_list("0-3,8"), Some(5));
        assert_eq!(count_list("7"), Some(1));
        assert_eq!(count_list(""), Some(0));
        for bad in ["x", "3-1", "1-", "-"] {
            assert_eq!(count_list(bad), None, "{bad}");
        }
        assert_eq!(count_list("0-18446744073709551615"), Some(u64::MAX));
    }
}
