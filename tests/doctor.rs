//! `reclane doctor` on this host, and on directory trees that look like other hosts: sound ones, broken ones, hostile ones.
#![cfg(feature = "command")]

use reclane::engine::{Server, builtin_store};
use reclane::options::{Options, Side};
use reclane::sync::Arc;
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::{Command, Output};

/// A directory that stands for a host's root; gone when dropped.
struct Host(PathBuf);

impl Drop for Host {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const LIMITS: &str = "\
Limit                     Soft Limit           Hard Limit           Units
Max open files            20000                20000                files
Max locked memory         unlimited            unlimited            bytes
";
const MEMINFO: &str = "\
MemTotal:       16000000 kB
MemAvailable:   12000000 kB
HugePages_Total:       64
HugePages_Free:        64
Hugepagesize:       2048 kB
";
const PORT: &str = "sys/class/infiniband/rxe0/ports/1";

impl Host {
    fn empty(name: &str) -> Host {
        let path = std::env::temp_dir().join(format!("reclane-doctor-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Host(path)
    }

    /// A sound host without RDMA.
    fn plain(name: &str) -> Host {
        let host = Host::empty(name);
        host.put("proc/self/limits", LIMITS);
        host.put("proc/self/status", "CapEff:\t0000000000000000\nCpus_allowed_list:\t0-3\n");
        host.put("proc/self/cgroup", "0::/apps/ps\n");
        host.put("proc/meminfo", MEMINFO);
        host.put("proc/sys/vm/overcommit_memory", "0\n");
        host.put("proc/sys/vm/max_map_count", "65530\n");
        host.put("proc/sys/vm/memfd_noexec", "0\n");
        host.put("proc/sys/kernel/osrelease", "6.1.0-57-amd64\n");
        host.put("proc/sys/kernel/numa_balancing", "0\n");
        host.put("sys/devices/system/cpu/online", "0-3\n");
        host.put("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
        host
    }

    /// A sound host with one Ethernet device.
    fn roce(name: &str) -> Host {
        let host = Host::plain(name);
        host.put("sys/module/ib_uverbs/refcnt", "1\n");
        host.put("sys/module/rdma_rxe/refcnt", "1\n");
        host.put("sys/class/infiniband/rxe0/fw_ver", "\n");
        host.put("sys/class/infiniband_verbs/uverbs0/ibdev", "rxe0\n");
        host.put("dev/infiniband/uverbs0", "");
        host.put(&format!("{PORT}/state"), "4: ACTIVE\n");
        host.put(&format!("{PORT}/phys_state"), "5: LinkUp\n");
        host.put(&format!("{PORT}/link_layer"), "Ethernet\n");
        host.put(&format!("{PORT}/rate"), "2.5 Gb/sec (1X SDR)\n");
        host.put(&format!("{PORT}/lid"), "0x0\n");
        for (index, gid, kind) in [
            (0, "fe80:0000:0000:0000:5054:00ff:fe12:3456", "RoCE v2"),
            (1, "0000:0000:0000:0000:0000:ffff:0a4d:0001", "RoCE v2"),
            (2, "0000:0000:0000:0000:0000:0000:0000:0000", "RoCE v2"),
        ] {
            host.put(&format!("{PORT}/gids/{index}"), &format!("{gid}\n"));
            host.put(&format!("{PORT}/gid_attrs/types/{index}"), &format!("{kind}\n"));
            host.put(&format!("{PORT}/gid_attrs/ndevs/{index}"), "ep0\n");
        }
        host.put("sys/class/net/ep0/mtu", "4200\n");
        host
    }

    fn put(&self, path: &str, text: &str) {
        let place = self.0.join(path);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::write(place, text).unwrap();
    }

    fn remove(&self, path: &str) {
        let place = self.0.join(path);
        if place.is_dir() { fs::remove_dir_all(place).unwrap() } else { fs::remove_file(place).unwrap() }
    }

    fn doctor(&self, flags: &[&str]) -> Report {
        let root = self.0.to_str().unwrap();
        Report::of(&[&["--root", root, "--json", "--"], flags].concat())
    }
}

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_reclane")).arg("doctor").args(arguments).output().unwrap()
}

/// What the doctor said, as machines read it.
struct Report(Value);

impl Report {
    fn of(arguments: &[&str]) -> Report {
        let output = run(arguments);
        let value: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {} {}", text(&output.stdout), text(&output.stderr)));
        assert_eq!(output.status.code().map(i64::from), value["exit_code"].as_i64(), "{value:#}");
        let levels: Vec<&str> =
            value["findings"].as_array().unwrap().iter().map(|f| f["level"].as_str().unwrap()).collect();
        let worst = ["ok", "warning", "error"].iter().rposition(|level| levels.contains(level));
        assert_eq!(value["exit_code"].as_u64(), worst.map(|level| level as u64), "{value:#}");
        Report(value)
    }

    fn exit_code(&self) -> u64 {
        self.0["exit_code"].as_u64().unwrap()
    }

    /// All findings of one check.
    fn all(&self, check: &str) -> Vec<&Value> {
        self.0["findings"].as_array().unwrap().iter().filter(|finding| finding["check"] == check).collect()
    }

    /// The worst finding of a check has this level, and these words in what was found and in what mends it.
    fn says(&self, check: &str, level: &str, found: &str, mend: &str) {
        let fits = |finding: &&&Value| {
            finding["level"] == level
                && finding["found"].as_str().unwrap().contains(found)
                && finding["mend"].as_str().unwrap().contains(mend)
        };
        assert!(
            self.all(check).iter().any(|finding| fits(&finding)),
            "{check} {level} {found:?} {mend:?}: {:#}",
            self.0
        );
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_sound_host_is_well_with_and_without_rdma() {
    let report = Host::plain("plain").doctor(&[]);
    assert_eq!(report.exit_code(), 0, "{:#}", report.0);
    report.says("rdma devices", "ok", "none", "");
    report.says("fabric", "ok", "fabric=shm: memory that processes of this host share; it needs nothing of RDMA", "");
    let report = Host::roce("roce").doctor(&["--fabric=verbs", "--rdma-device=rxe0", "--rdma-gid-subnet=10.77.0.0/16"]);
    assert_eq!(report.exit_code(), 0, "{:#}", report.0);
    report.says("port", "ok", "rxe0 port 1: ACTIVE (LinkUp), link layer Ethernet, rate 2.5 Gb/sec (1X SDR)", "");
    report.says("gids", "ok", "0 RoCE v2 fe80::5054:ff:fe12:3456, 1 RoCE v2 10.77.0.1", "");
    report.says("mtu", "ok", "ep0 has 4200, so RDMA packets carry 4096 bytes", "");
    report.says("choice", "ok", "rxe0 port 1, rocev2, GID 1 RoCE v2 10.77.0.1", "");
    report.says("device file", "ok", "/dev/infiniband/uverbs0 of rxe0", "");
    report.says(
        "memlock",
        "ok",
        "no limit, needed 4206592 bytes (about 4 MiB) to open and 33566720 bytes (about 32 MiB) with",
        "",
    );
}

#[test]
fn what_is_wrong_with_rdma_is_named_with_what_mends_it() {
    type Change = fn(&Host);
    let cases: &[(Change, &[&str], [&str; 4])] = &[
        (|host| host.remove("sys/class/infiniband"), &[], ["rdma devices", "error", "none", "modprobe rdma_rxe"]),
        (
            |host| host.remove("sys/module/ib_uverbs"),
            &[],
            ["kernel modules", "error", "ib_uverbs is missing", "modprobe ib_uverbs"],
        ),
        (
            |host| host.put(&format!("{PORT}/state"), "1: DOWN\n"),
            &[],
            ["port", "error", "DOWN", "ip link set dev ep0 up"],
        ),
        (
            |host| host.put(&format!("{PORT}/state"), "1: DOWN\n"),
            &[],
            ["choice", "error", "rxe0 port 1 is DOWN", "port above"],
        ),
        (
            |host| {
                host.put(&format!("{PORT}/link_layer"), "InfiniBand\n");
                host.put(&format!("{PORT}/state"), "2: INIT\n");
            },
            &["--rdma-mode=ib"],
            ["port", "error", "INIT", "systemctl start opensm"],
        ),
        (
            |_| {},
            &["--rdma-mode=ib"],
            ["choice", "error", "the link layer of rxe0 port 1 is Ethernet", "rdma-mode=rocev2"],
        ),
        (|_| {}, &["--rdma-mode=rocev1"], ["choice", "error", "no address for rocev1", "rdma-gid-index=-1"]),
        (|_| {}, &["--rdma-gid-index=2"], ["choice", "error", "rdma-gid-index=2", "ip addr add"]),
        (|_| {}, &["--rdma-gid-subnet=10.9.0.0/16"], ["choice", "error", "for rocev2 in 10.9.0.0/16", "ip addr add"]),
        (|_| {}, &["--rdma-port=2"], ["choice", "error", "rdma-port=2: rxe0 has no such port", "set rdma-port"]),
        (|_| {}, &["--rdma-device=mlx5_7"], ["choice", "error", "rdma-device=mlx5_7: no such device", "rdma link"]),
        (|host| host.remove(&format!("{PORT}/gids")), &[], ["gids", "error", "none", "ip link set dev"]),
        (|host| host.put("sys/class/net/ep0/mtu", "1500\n"), &[], ["mtu", "warning", "carry 1024 bytes", "mtu 4200"]),
        (|host| host.remove("sys/class/net"), &[], ["mtu", "warning", "not in this network namespace", "rdma system"]),
        (
            |host| host.remove("dev/infiniband/uverbs0"),
            &[],
            ["device file", "error", "is missing", "--device=/dev/infiniband/uverbs0"],
        ),
        (
            |host| host.remove("sys/class/infiniband_verbs"),
            &[],
            ["device file", "error", "no file", "modprobe ib_uverbs"],
        ),
    ];
    for (number, (change, flags, [check, level, found, mend])) in cases.iter().enumerate() {
        let host = Host::roce(&format!("rdma-{number}"));
        change(&host);
        let named = flags.iter().any(|flag| flag.starts_with("--rdma-device"));
        let base: &[&str] = if named { &["--fabric=verbs"] } else { &["--fabric=verbs", "--rdma-device=rxe0"] };
        let report = host.doctor(&[base, flags].concat());
        report.says(check, level, found, mend);
        // On shared memory nothing of it is wrong.
        let report = host.doctor(&[]);
        assert_eq!(report.exit_code(), 0, "{check}: {:#}", report.0);
    }
}

#[test]
fn a_deployment_file_says_which_port_is_looked_at() {
    let host = Host::roce("file");
    let node = |id: u32, role: &str, device: &str| {
        serde_json::json!({
            "node_id": id, "role": role, "device": device, "port": 1, "gid_index": -1, "gid_subnet": "10.77.0.0/24",
            "mode": "rocev2", "hop_limit": 64, "traffic_class": 0, "flow_label": 0,
        })
    };
    let file = serde_json::json!({
        "distributed_client": {
            "num_shards": 1, "hash_method": "city_hash", "max_keys_per_request": 500,
            "servers": [{ "shard": 0, "host": "10.77.0.1", "port": 25000 }],
        },
        "rdma_deployment": {
            "deployment_id": "d", "epoch": 1, "protocol_version": 1, "num_clients": 1,
            "nodes": [node(0, "server", "rxe0"), node(1, "client", "rxe7")],
        },
    });
    host.put("deployment.json", &file.to_string());
    let flag = format!("--deployment-file={}", host.0.join("deployment.json").display());
    let root = host.0.to_str().unwrap();
    let look = |side: &str| Report::of(&["--root", root, "--json", "--side", side, "--", &flag]);
    look("server").says("choice", "ok", "rxe0 port 1, rocev2, GID 1 RoCE v2 10.77.0.1", "");
    look("client").says("choice", "error", "rdma-device=rxe7: no such device", "rdma link");
    // Both nodes on this host, the second one's interface with small frames.
    let port = "sys/class/infiniband/rxe7/ports/1";
    host.put(&format!("{port}/gids/0"), "0000:0000:0000:0000:0000:ffff:0a4d:0002\n");
    host.put(&format!("{port}/gid_attrs/ndevs/0"), "ep7\n");
    host.put("sys/class/net/ep7/mtu", "1500\n");
    look("client").says(
        "deployment mtu",
        "warning",
        "rxe0 port 1 of node 0 4096, rxe7 port 1 of node 1 1024",
        "rdma-path-mtu",
    );
    host.put("sys/class/net/ep7/mtu", "4200\n");
    look("client").says("deployment mtu", "ok", "rxe7 port 1 of node 1 4096", "");
    host.put("deployment.json", "{}");
    look("client").says("options", "error", "distributed_client: this section is missing (and 1 more", "");
}

#[test]
fn the_place_of_a_device_is_compared_with_the_processors_that_may_be_used() {
    let host = Host::roce("near");
    host.put("sys/devices/system/node/node0/cpulist", "0-3\n");
    host.put("sys/devices/system/node/node1/cpulist", "4-7\n");
    host.put("sys/class/infiniband/rxe0/device/numa_node", "1\n");
    host.doctor(&["--fabric=verbs"]).says("numa", "warning", "none of that node's processors (4-7)", "--cpunodebind=1");
    host.doctor(&["--fabric=verbs", "--numa-id=0"]).says("numa", "warning", "numa-id is 0", "numa-id=1");
    host.put("proc/self/status", "CapEff:\t0\nCpus_allowed_list:\t0-7\n");
    host.doctor(&["--fabric=verbs"]).says("numa", "ok", "at NUMA node 1, with some of the processors", "");
    host.put("proc/self/status", "CapEff:\t0\nCpus_allowed_list:\t5\n");
    host.doctor(&["--fabric=verbs"]).says("numa", "ok", "with all of the processors", "");
    host.put("sys/devices/system/node/node1/cpulist", "0-4294967295\n");
    assert!(host.doctor(&["--fabric=verbs"]).all("numa").is_empty());
}

#[test]
fn an_adapter_without_its_driver_is_seen() {
    let host = Host::plain("pci");
    host.put("sys/bus/pci/devices/0000:81:00.0/vendor", "0x15b3\n");
    host.put("sys/bus/pci/devices/0000:81:00.0/class", "0x020700\n");
    let report = host.doctor(&[]);
    report.says("rdma devices", "ok", "adapter 0000:81:00.0", "");
    let meaning = report.all("rdma devices")[0]["meaning"].as_str().unwrap();
    assert!(meaning.starts_with("nothing for fabric=shm; for fabric=verbs: ") && meaning.contains("modprobe mlx5_ib"));
    host.doctor(&["--fabric=verbs"]).says("rdma devices", "error", "adapter 0000:81:00.0", "modprobe mlx5_ib");
}

/// File, its content, options, then the finding: check, level, words of what was found, words of what mends it.
const TROUBLES: &str = "\
proc/self/limits | LOCKED 65536 | --fabric=verbs | memlock | error | limit 65536 bytes (64 KiB), needed 4206592 bytes (about 4 MiB) to open and 33566720 bytes | --memlock=33566720
proc/self/limits | LOCKED 4206591 | --fabric=verbs | memlock | error | limit 4206591 bytes | --memlock=33566720
proc/self/limits | LOCKED 4206592 | --fabric=verbs | memlock | warning | limit 4206592 bytes (about 4 MiB), needed 4206592 bytes (about 4 MiB) to open and 33566720 | --memlock=33566720
proc/self/limits | LOCKED 33566719 | --fabric=verbs | memlock | warning | needed 4206592 bytes | --memlock=33566720
proc/self/limits | LOCKED 33566719 | --fabric=verbs --qps-at-open=1024 | memlock | error | needed 33566720 bytes (about 32 MiB) to open | --memlock=33566720
proc/self/limits | OPEN 70 | | open files | error | limit 70, needed about 72 | --nofile=72
proc/self/limits | | | open files | warning | cannot be read | /proc/self/limits
proc/meminfo | MemAvailable: 1000 kB | | memory | error | 1000 KiB available; slots need about 2 MiB to open and about 16 MiB with all lanes | qps-per-client
proc/meminfo | MemAvailable: 8192 kB | | memory | warning | 8 MiB available; slots need about 2 MiB to open and about 16 MiB with all lanes | qps-per-client
sys/fs/cgroup/apps/ps/memory.max | 1048576 | | memory | error | control group at most 1 MiB | lower
proc/meminfo | FREE 1 | --huge-pages=on | huge pages | error | 1 of 64 pages of 2 MiB are free; huge-pages=on; slots need 2 to open and 9 with all lanes | vm.nr_hugepages=72
proc/meminfo | FREE 2 | --huge-pages=on | huge pages | warning | 2 of 64 pages of 2 MiB are free; huge-pages=on; slots need 2 to open and 9 | vm.nr_hugepages=71
sys/kernel/mm/transparent_hugepage/enabled | always madvise [never] | | transparent huge pages | warning | enabled is never | echo madvise >
proc/sys/vm/overcommit_memory | 2 | | overcommit | warning | is 2 | sysctl vm.overcommit_memory=0
proc/sys/vm/max_map_count | 100 | | mappings | error | is 100 | sysctl vm.max_map_count=
proc/sys/vm/memfd_noexec | 2 | | memfd policy | error | is 2 | sysctl vm.memfd_noexec=1
proc/self/status | Cpus_allowed_list: 2 | | cores | warning | 1 of 4 may be used | taskset
sys/fs/cgroup/apps/ps/cpu.max | 100000 100000 | | cores | warning | the time of 1 | cpu.max
sys/devices/system/cpu/cpu0/cpufreq/scaling_governor | powersave | | frequency | warning | powersave | cpupower
proc/sys/kernel/osrelease | 4.19.0 | --fabric=verbs | fork safety | warning | 4.19.0 | RDMAV_FORK_SAFE
";

/// The content of a file of the table above: some are changes of the sound one.
fn content(text: &str) -> String {
    let limit = |name: &str, value: &str| {
        let line = LIMITS.lines().find(|line| line.starts_with(name)).unwrap();
        LIMITS.replace(line, &format!("{name}    {value}    {value}    units"))
    };
    match text.split_once(' ') {
        Some(("LOCKED", value)) => limit("Max locked memory", value),
        Some(("OPEN", value)) => limit("Max open files", value),
        Some(("FREE", value)) => MEMINFO.replace("HugePages_Free:        64", &format!("HugePages_Free: {value}")),
        _ => format!("{text}\n"),
    }
}

#[test]
fn what_is_wrong_with_the_host_is_named_with_what_mends_it() {
    assert!(TROUBLES.lines().count() > 10);
    for (number, line) in TROUBLES.lines().enumerate() {
        let [path, text, flag, check, level, found, mend] = line.split('|').map(str::trim).collect::<Vec<_>>()[..]
        else {
            panic!("{line}");
        };
        let host = Host::roce(&format!("host-{number}"));
        host.put(path, &content(text));
        let flags: Vec<&str> = flag.split_whitespace().collect();
        let report = host.doctor(&flags);
        report.says(check, level, found, mend);
        assert_ne!(report.exit_code(), 0);
    }
    let numa = Host::plain("numa");
    numa.put("proc/sys/kernel/numa_balancing", "1\n");
    numa.put("sys/devices/system/node/online", "0-1\n");
    numa.doctor(&[]).says("numa balancing", "warning", "2 NUMA nodes", "sysctl kernel.numa_balancing=0");
}

#[test]
fn a_privilege_lifts_the_limit_of_locked_memory() {
    let host = Host::roce("cap");
    host.put("proc/self/limits", &LIMITS.replace("unlimited", "65536"));
    host.put("proc/self/status", "CapEff:\t0000000000004000\nCpus_allowed_list:\t0-3\n");
    host.doctor(&["--fabric=verbs"]).says("memlock", "ok", "CAP_IPC_LOCK", "");
}

#[test]
fn options_that_contradict_each_other_are_a_finding() {
    let host = Host::plain("options");
    let report = host.doctor(&["--async-depth=99"]);
    report.says("options", "error", "async-depth = 99 (flag --async-depth)", "reclane options");
    assert_eq!(report.exit_code(), 2);
    host.doctor(&["--slots-per-pq=2"]).says("options", "error", "did you mean slots-per-qp?", "");
    host.doctor(&["stray"]).says("options", "error", "'stray' is not of the form --name=value", "");
}

#[test]
fn an_empty_root_is_reported_and_not_trusted() {
    let report = Host::empty("empty").doctor(&["--fabric=verbs"]);
    assert_eq!(report.exit_code(), 2);
    report.says("memlock", "warning", "cannot be read", "");
    report.says("rdma devices", "error", "none", "");
}

/// Each file of the tree is replaced by what an enemy, or a broken kernel, could put there.
#[test]
fn hostile_trees_neither_stop_nor_crash_the_doctor() {
    type Replace = fn(&PathBuf);
    let bad: &[(&str, Replace)] = &[
        ("garbage", |place| fs::write(place, [0xff, 0, b'\n', 0x1b, b'[', b'2', b'J', 0xc3]).unwrap()),
        ("empty", |place| fs::write(place, "").unwrap()),
        ("directory", |place| fs::create_dir(place).unwrap()),
        ("loop", |place| symlink(place, place).unwrap()),
        ("dangling", |place| symlink("nowhere", place).unwrap()),
        ("fifo", |place| {
            let name = std::ffi::CString::new(place.as_os_str().as_bytes()).unwrap();
            // SAFETY: a C string.
            assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        }),
        ("endless", |place| symlink("/dev/zero", place).unwrap()),
        ("huge", |place| fs::File::create(place).unwrap().set_len(1 << 40).unwrap()),
        ("numbers", |place| fs::write(place, "99999999999999999999999999 -1 [x\n").unwrap()),
        ("limits", |place| fs::write(place, u64::MAX.to_string()).unwrap()),
    ];
    for (name, replace) in bad {
        let host = Host::roce(&format!("hostile-{name}"));
        let mut files = Vec::new();
        collect(&host.0, &mut files);
        assert!(files.len() > 25);
        for file in &files {
            fs::remove_file(file).unwrap();
            replace(file);
        }
        let root = host.0.to_str().unwrap();
        let output = run(&["--root", root, "--", "--fabric=verbs", "--rdma-device=rxe0"]);
        assert_eq!(output.status.code(), Some(2), "{name}: {}", text(&output.stderr));
        let shown = text(&output.stdout);
        assert!(shown.chars().all(|c| c == '\n' || !c.is_control()), "{name}: {shown:?}");
        assert!(shown.ends_with("errors\n") && shown.len() < 20_000, "{name}: {shown}");
    }
}

fn collect(folder: &PathBuf, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() { collect(&path, files) } else { files.push(path) }
    }
}

#[test]
fn names_of_an_enemy_and_crowds_are_told_within_bounds() {
    let host = Host::roce("crowd");
    for number in 0..2000 {
        host.put(&format!("{PORT}/gids/{}", 10 + number), &format!("::ffff:10.1.{}.{}\n", number / 250, number % 250));
    }
    host.put("sys/class/infiniband/\x1b[2Jevil\n/ports/1/state", "4: ACTIVE\n");
    let root = host.0.to_str().unwrap();
    let output = run(&["--root", root, "--", "--fabric=verbs"]);
    let shown = text(&output.stdout);
    assert!(shown.contains("and 1007 more") && shown.contains("evil"), "{shown}");
    assert!(shown.chars().all(|c| c == '\n' || !c.is_control()), "{shown:?}");
}

#[test]
fn this_host_is_examined_and_answers_through_its_own_shared_memory() {
    let report = Report::of(&["--json", "--", "--rdma-control-plane-port=0"]);
    report.says(
        "self-test shm",
        report.all("self-test shm")[0]["level"].as_str().unwrap(),
        "GET of one 64-byte row",
        "",
    );
    assert_ne!(report.all("self-test shm")[0]["level"], "error", "{:#}", report.0);
    let half = report.0["measured"]["shm_get_1x64_p50_ns"].as_u64().unwrap();
    assert!(half > 0 && report.0["measured"]["shm_get_1x64_p99_ns"].as_u64().unwrap() >= half);
    assert_eq!(report.all("memfd")[0]["level"], "ok");
    report.says("control plane", "ok", "any free port", "");
    for check in
        ["memlock", "open files", "memory", "huge pages", "cores", "fork safety", "libibverbs", "self-test verbs"]
    {
        assert_eq!(report.all(check).len(), 1, "{check}");
    }
}

#[test]
fn the_control_plane_is_asked_and_a_stranger_on_its_port_is_told_from_it() {
    let named = |port: u16| {
        let flag = format!("--rdma-control-plane-port={port}");
        Report::of(&["--json", "--no-self-test", "--side=client", "--", &flag])
    };
    let mut options = Options::new();
    for (name, value) in [("rdma-control-plane-port", "0"), ("rdma-namespace", "doctor-test")] {
        options.set(name, value).unwrap();
    }
    let settings = options.settings(Side::Server).unwrap();
    let server = Server::start(&settings, Arc::new(builtin_store(&settings).unwrap())).unwrap();
    named(server.control_plane_port().unwrap()).says("control plane", "ok", "answers", "");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // Answers each caller, as long as this test's process lives.
    std::thread::spawn(move || {
        for caller in listener.incoming() {
            let _ = caller.unwrap().write_all(b"SSH-2.0-stranger\r\n");
        }
    });
    named(port).says("control plane", "error", "no control plane answers", "nc -vz");
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    named(free).says("control plane", "warning", "nobody listens", "ss -ltnp");
    // Shards are looked at before they are started.
    let flag = format!("--rdma-control-plane-port={free}");
    let report = Report::of(&["--json", "--no-self-test", "--side=server", "--", &flag]);
    report.says("control plane", "ok", "nobody listens", "start shard 0");
    let report = Report::of(&["--json", "--no-self-test", "--", "--rdma-control-plane-host=no-such-host.invalid"]);
    report.says("control plane", "error", "no-such-host.invalid", "getent hosts");
}

#[test]
fn the_file_of_the_token_is_looked_at() {
    let host = Host::empty("token");
    let path = host.0.join("token");
    let flag = format!("--control-plane-token-file={}", path.display());
    let look = || Report::of(&["--json", "--no-self-test", "--", &flag]);
    look().says("token file", "error", "No such file", "/dev/urandom");
    host.put("token", "sixteen-bytes-at-least\n");
    let mode = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    mode(0o640);
    look().says("token file", "warning", "mode 640", "chmod 600");
    mode(0o600);
    look().says("token file", "ok", "mode 600", "");
}

#[test]
fn the_help_says_what_the_exit_codes_mean() {
    let help = text(&run(&["--help"]).stdout);
    assert!(help.contains("0 when all is well, 1 when there are warnings, and 2 when there are errors"), "{help}");
}
