//! The pure parts, and the script that holds a process by its input.

use super::plan::{Commands, Meeting, Process, Role};
use super::topology::{self, Topology};
use super::*;
use clap::Parser;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    arguments: Arguments,
}

fn arguments(line: &[&str]) -> Arguments {
    Line::try_parse_from([&["launch"], line].concat()).unwrap().arguments
}

fn topology_of(line: &[&str]) -> Topology {
    topology::of(&arguments(line)).unwrap()
}

fn words(line: &str) -> Vec<String> {
    shell::split(line).unwrap()
}

fn plan_of(line: &[&str]) -> Vec<Process> {
    let arguments = arguments(line);
    let commands = Commands {
        server: words(&arguments.server_cmd),
        client: words(&arguments.client_cmd),
        entry: arguments.client_entry,
        flags: arguments.flags.clone(),
    };
    let topology = topology::of(&arguments).unwrap();
    let meeting = Meeting { host: topology.first_server(), port: 4711, namespace: "run-1".to_owned() };
    plan::of(&topology, &commands, &meeting).unwrap()
}

#[test]
fn nothing_said_is_one_server_and_one_client_here() {
    let topology = topology_of(&[]);
    assert_eq!((topology.servers, topology.clients), (vec!["127.0.0.1".to_owned()], vec!["127.0.0.1".to_owned()]));
    assert_eq!(topology.backend, Backend::Local);
}

#[test]
fn generic_counts_hosts_and_processes_on_each() {
    let plan = plan_of(&[
        "--server-shard-ips=10.0.0.1,10.0.0.2",
        "--client-ips=10.0.0.3,10.0.0.4",
        "--client-processes-per-ip=2",
        "--server-rdma-threads=3",
        "--server-cmd=srv --quiet",
        "--client-cmd=cli",
        "--",
        "--fabric=verbs",
    ]);
    let names: Vec<String> = plan.iter().map(Process::name).collect();
    assert_eq!(names, ["server-0", "server-1", "client-0", "client-1", "client-2", "client-3"]);
    let common = "--num_server_processes=2 --num_client_processes=4 --rdma_control_plane_host=10.0.0.1 \
                  --rdma_control_plane_port=4711 --rdma_namespace=run-1";
    let server = format!("srv --quiet --global_id=1 {common} --server_rdma_threads=3 --fabric=verbs");
    assert_eq!(plan[1].words, words(&server));
    assert_eq!(plan[5].words, words(&format!("cli --global_id=5 {common} --fabric=verbs")));
    assert_eq!(plan[5].role, Role::Client(3));
    assert!(plan.iter().all(|process| process.environment.is_empty() && !process.held_by_input));
}

#[test]
fn rc_counts_processes_of_this_host() {
    let plan = plan_of(&["--server-count=2", "--client-count=3", "--thread-num=4"]);
    assert_eq!(plan.len(), 5);
    assert!(plan[0].words.contains(&"--thread_num=4".to_owned()) && plan[0].words[0] == "reclane_ps_server");
    assert!(plan[4].words.contains(&"--global_id=4".to_owned()) && plan[4].words[0] == "reclane_ps_bench");
    assert!(!plan[4].words.iter().any(|word| word.starts_with("--thread_num")));
}

#[test]
fn a_mix_is_refused_with_the_flags_of_both() {
    let error = topology::of(&arguments(&["--client-ips=10.0.0.1", "--thread-num=2"])).unwrap_err();
    assert!(error.message.contains("--client-ips") && error.message.contains("--thread-num"), "{error}");
}

#[test]
fn counts_and_hosts_are_checked() {
    for (line, part) in [
        (["--server-count=0"], "--server-count=0"),
        (["--client-count=5000"], "4096"),
        (["--client-processes-per-ip=0"], "--client-processes-per-ip=0"),
        (["--client-ips=-oProxyCommand=x"], "-oProxyCommand"),
        (["--server-shard-ips=a b"], "a b"),
    ] {
        let error = topology::of(&arguments(&line)).unwrap_err();
        assert!(error.message.contains(part), "{error}");
    }
}

#[test]
fn clients_of_the_environment_get_variables_that_the_library_knows() {
    let plan = plan_of(&["--server-count=1", "--client-count=2", "--client-entry=environment"]);
    let client = &plan[2];
    assert_eq!(client.words, ["reclane_ps_bench"]);
    let options = reclane::options::Options::from_variables(client.environment.iter().map(|(n, v)| (n, v))).unwrap();
    let settings = options.settings(reclane::options::Side::Client).unwrap();
    assert_eq!((settings.client_id, settings.num_client_processes, settings.num_shards), (Some(1), 2, 1));
    assert_eq!((settings.control_plane_port, settings.namespace.as_str()), (4711, "run-1"));
}

#[test]
fn the_flags_are_options_that_the_library_knows() {
    for process in plan_of(&["--server-count=2", "--client-count=2", "--thread-num=2"]) {
        let mut options = reclane::options::Options::new();
        for word in &process.words[1..] {
            let (name, value) = word.strip_prefix("--").unwrap().split_once('=').unwrap();
            options.set(name, value).unwrap();
        }
        match process.role {
            Role::Server(shard) => {
                assert_eq!(options.settings(reclane::options::Side::Server).unwrap().shard_id, shard);
            }
            Role::Client(client) => {
                assert_eq!(options.settings(reclane::options::Side::Client).unwrap().client_id, Some(client));
            }
        }
    }
}

#[test]
fn ssh_gets_the_host_and_one_quoted_script() {
    let plan = plan_of(&["--execution-backend=ssh", "--server-shard-ips=me@10.0.0.1", "--client-ips=h2"]);
    let ssh = &plan[0].words;
    let [dashes, host, script] = &ssh[ssh.len() - 3..] else { panic!("{ssh:?}") };
    assert_eq!((ssh[0].as_str(), dashes.as_str(), host.as_str()), ("ssh", "--", "me@10.0.0.1"));
    assert!(script.starts_with("exec sh -c '") && script.contains("reclane_ps_server --global_id=0"), "{script}");
    assert!(script.contains("--rdma_control_plane_host=10.0.0.1 "), "{script}");
    assert!(plan[0].held_by_input);
}

#[test]
fn command_lines_are_split_like_a_shell_would() {
    let cases: [(&str, &[&str]); 5] = [
        ("a  b\tc", &["a", "b", "c"]),
        ("a 'b c' \"d e\"f", &["a", "b c", "d ef"]),
        (r#"a\ b "c\"d" 'e\f'"#, &["a b", "c\"d", "e\\f"]),
        ("'' x", &["", "x"]),
        ("--a='b'", &["--a=b"]),
    ];
    for (line, expected) in cases {
        assert_eq!(shell::split(line).unwrap(), expected, "{line}");
    }
    for line in ["", "  ", "a 'b", "a \\", "\"a"] {
        shell::split(line).unwrap_err();
    }
}

#[test]
fn a_shell_reads_quoted_words_as_they_were() {
    let nasty = ["plain", "", "two words", "it's", "$HOME", "a\"b", "`id`", "a;b|c&d", "line\nend", "*", "\\", "~"];
    let script = format!("printf '%s\\0' {}", nasty.map(shell::quoted).join(" "));
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    let read: Vec<&str> = std::str::from_utf8(&output.stdout).unwrap().split_terminator('\0').collect();
    assert_eq!(read, nasty);
    assert_eq!(shell::split(&nasty.map(shell::quoted).join(" ")).unwrap(), nasty);
}

fn held(script: &str) -> std::process::Child {
    let words = ["sh".to_owned(), "-c".to_owned(), script.to_owned()];
    let environment = [("HELD_VALUE".to_owned(), "a b".to_owned())];
    let mut command = Command::new("sh");
    command.args(["-c", &shell::held(&words, &environment)]).stdin(Stdio::piped()).stdout(Stdio::piped());
    command.spawn().unwrap()
}

#[test]
fn the_holding_script_passes_output_variables_and_exit_code() {
    let mut child = held("echo \"<$HELD_VALUE>\"; exit 7");
    // Its input stays open: it must end by itself.
    let input = child.stdin.take();
    let output = child.wait_with_output().unwrap();
    drop(input);
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(7), b"<a b>\n".as_slice()));
}

#[test]
fn the_holding_script_stops_the_process_when_its_input_ends() {
    let mut child = held("trap 'echo stopping; exit 9' TERM; echo up; while :; do sleep 0.02; done");
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "up\n");
    drop(child.stdin.take());
    line.clear();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "stopping\n");
    let status = child.wait().unwrap();
    assert_eq!((status.code(), status.signal()), (Some(9), None));
}
