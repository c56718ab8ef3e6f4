//! `reclane launch` with real processes: small shell scripts in the places of servers and clients.
#![cfg(feature = "command")]

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

const SERVER: &str = r#"sh -c "trap 'echo stopped; exit 0' TERM; echo up; while :; do sleep 0.02; done" server"#;

struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Dir {
        let path = std::env::temp_dir().join(format!("reclane-launch-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Dir(path)
    }

    fn log(&self, role: &str) -> String {
        fs::read_to_string(self.0.join("logs").join(format!("{role}.log"))).unwrap()
    }

    fn launch(&self, line: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_reclane"));
        command.arg("launch").arg("--log-dir").arg(self.0.join("logs")).args(line);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, line: &[&str]) -> Output {
        self.launch(line).output().unwrap()
    }

    fn script(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn fifo(&self) -> PathBuf {
        let path = self.0.join("alive");
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        path
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Ends when nobody holds the fifo's other end any more. The bound is a watchdog: a survivor would hang the test.
fn everybody_is_gone(fifo: &Path) {
    let path = fifo.to_owned();
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        // Opened for both directions first, so that opening waits for nobody.
        let both = File::options().read(true).write(true).open(&path).unwrap();
        let mut reader = File::open(&path).unwrap();
        drop(both);
        let _ = reader.read_to_end(&mut Vec::new());
        let _ = sender.send(());
    });
    receiver.recv_timeout(Duration::from_secs(120)).expect("a process survived");
}

fn signal(child: &Child, signal: i32) {
    // SAFETY: kill takes no pointers; the child was not waited for, so the number is its own.
    assert_eq!(unsafe { libc::kill(child.id().try_into().unwrap(), signal) }, 0);
}

#[test]
fn every_process_gets_its_flags_and_its_log_and_servers_are_stopped() {
    let dir = Dir::new("success");
    let client = r#"sh -c "echo $@" client"#.replace("$@", r"\$@");
    let output = dir.run(&[
        "--server-count=2",
        "--client-count=3",
        "--thread-num=2",
        "--rdma-namespace=fixed",
        "--follow=client-1",
        "--server-cmd",
        SERVER,
        "--client-cmd",
        &client,
        "--",
        "--value_size=64",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(dir.0.join("logs/server-0.log").exists() && dir.0.join("logs/server-1.log").exists());
    for client in 0..3 {
        let log = dir.log(&format!("client-{client}"));
        let head = format!("--global_id={} --num_server_processes=2 --num_client_processes=3", 2 + client);
        assert!(log.starts_with(&head) && log.ends_with("--rdma_namespace=fixed --value_size=64\n"), "{log}");
    }
    assert_eq!(String::from_utf8_lossy(&output.stdout), dir.log("client-1"));
}

#[test]
fn it_says_where_the_logs_are_and_how_to_watch() {
    let dir = Dir::new("watch");
    let client = dir.script("client", "echo \"$@\"");
    let flags = ["--", "--deployment_id=seen", "--value_size=64"];
    let line = ["--rdma-namespace=fixed", "--server-cmd", SERVER, "--client-cmd", &client];
    let output = dir.run(&[&line[..], &flags].concat());
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let logs = dir.0.join("logs");
    assert!(said.contains("started; servers: 1, clients: 1"), "{said}");
    assert!(said.contains(&format!("logs: {}/server-N.log", logs.display())), "{said}");
    let after = |head: &str| said.lines().find_map(|line| line.strip_prefix(head)).expect(head).to_owned();
    let log = dir.log("client-0");
    let port = log.split("--rdma_control_plane_port=").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    // The command is good as it stands, and looks at this run, which is over.
    let looked = Command::new("sh").arg("-c").arg(after("reclane launch: look once: ")).output().unwrap();
    let shown = String::from_utf8_lossy(&looked.stdout).into_owned();
    assert_eq!(looked.status.code(), Some(2), "{shown} {}", stderr(&looked));
    assert!(shown.starts_with(&format!("reclane seen/fixed at 127.0.0.1:{port}: no control plane")), "{shown}");
    assert!(after("reclane launch: watch: ").contains(" top -- --rdma-control-plane-host=127.0.0.1"), "{said}");
}

#[test]
fn the_first_failing_client_is_named_with_its_last_lines_and_its_code() {
    let dir = Dir::new("failure");
    let client =
        dir.script("client", "case $1 in --global_id=2) echo the reason; exit 7;; esac; while :; do sleep 0.02; done");
    let output = dir.run(&["--server-count=1", "--client-count=2", "--server-cmd", SERVER, "--client-cmd", &client]);
    assert_eq!(output.status.code(), Some(7));
    let text = stderr(&output);
    assert!(text.contains("client-1 exited with code 7") && text.contains("    the reason"), "{text}");
}

#[test]
fn a_server_that_ends_early_is_a_failure() {
    let dir = Dir::new("early");
    let client = dir.script("client", "while :; do sleep 0.02; done");
    let output =
        dir.run(&["--server-count=1", "--server-cmd", "sh -c 'echo bad port; exit 5'", "--client-cmd", &client]);
    assert_eq!(output.status.code(), Some(5));
    let text = stderr(&output);
    assert!(text.contains("server-0 exited with code 5 while clients were running"), "{text}");
    assert!(text.contains("    bad port"), "{text}");
}

#[test]
fn servers_are_asked_to_stop_and_may_say_goodbye() {
    let dir = Dir::new("goodbye");
    let fifo = dir.fifo();
    let trap = "trap 'echo stopped; exit 0' TERM";
    let server = format!("exec 9<>{}\n{trap}\necho x >&9\nwhile :; do sleep 0.02; done", fifo.display());
    let server = dir.script("server", &server);
    // The client ends only after the server has its trap.
    let client = dir.script("client", &format!("read line <{}", fifo.display()));
    let path = with_stand_in_ssh(&dir);
    for backend in ["local", "ssh"] {
        let line = ["--execution-backend", backend, "--server-cmd", &server, "--client-cmd", &client];
        let output = dir.launch(&line).env("PATH", &path).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        // The shell may also tell that its sleep was stopped, for the whole group was asked.
        let log = dir.log("server-0");
        assert!(log.ends_with("stopped\n"), "{backend}: {log}");
    }
    everybody_is_gone(&fifo);
}

#[test]
fn a_server_that_does_not_stop_is_killed_and_named() {
    let dir = Dir::new("stubborn");
    let fifo = dir.fifo();
    let server = dir.script(
        "server",
        &format!("exec 9<>{0}\ntrap '' TERM\necho x >&9\nwhile :; do sleep 0.02; done", fifo.display()),
    );
    // The client ends only after the server has its trap.
    let client = dir.script("client", &format!("read line <{}", fifo.display()));
    let output = dir.run(&["--server-count=1", "--grace-ms=100", "--server-cmd", &server, "--client-cmd", &client]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("server-0 did not stop within 100 ms and was killed"), "{}", stderr(&output));
    everybody_is_gone(&fifo);
}

/// Starts servers and clients that each have a child of their own, all holding the fifo, and waits until they run.
fn start_families(dir: &Dir, fifo: &Path, backend: &[&str]) -> Child {
    let family = dir.script("family", &format!("exec 9>{}\nsleep 1000 &\necho up $!\nwait", fifo.display()));
    // A reader must be there for the writers to open the fifo.
    let reader = File::options().read(true).write(true).open(fifo).unwrap();
    let line = [backend, &["--follow=client-1", "--server-cmd", &family, "--client-cmd", &family]].concat();
    let path = with_stand_in_ssh(dir);
    let mut launch = dir.launch(&line).env("PATH", path).stderr(Stdio::inherit()).spawn().unwrap();
    let mut output = BufReader::new(launch.stdout.take().unwrap());
    let mut up = String::new();
    output.read_line(&mut up).unwrap();
    assert!(up.starts_with("up "), "{up}");
    drop(reader);
    // Keeps the pipe open while the launch runs.
    std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
    launch
}

#[test]
fn an_interruption_leaves_nobody() {
    let local = ["--server-count=2", "--client-count=2"];
    let ssh = ["--execution-backend=ssh", "--client-processes-per-ip=2"];
    for (name, number, backend) in
        [("int", libc::SIGINT, local), ("term", libc::SIGTERM, local), ("ssh-int", libc::SIGINT, ssh)]
    {
        let dir = Dir::new(name);
        let fifo = dir.fifo();
        let mut launch = start_families(&dir, &fifo, &backend);
        signal(&launch, number);
        assert_eq!(launch.wait().unwrap().code(), Some(128 + number));
        everybody_is_gone(&fifo);
    }
}

#[test]
fn processes_die_with_a_killed_launch() {
    let dir = Dir::new("killed");
    let fifo = dir.fifo();
    let single = dir.script("single", &format!("exec 9<>{}\necho up\nexec sleep 1000", fifo.display()));
    let line = ["--client-count=2", "--follow=client-1", "--server-cmd", &single, "--client-cmd", &single];
    let mut launch = dir.launch(&line).spawn().unwrap();
    let mut up = String::new();
    BufReader::new(launch.stdout.take().unwrap()).read_line(&mut up).unwrap();
    assert_eq!(up, "up\n");
    signal(&launch, libc::SIGKILL);
    launch.wait().unwrap();
    everybody_is_gone(&fifo);
}

#[test]
fn a_time_limit_ends_the_run() {
    let dir = Dir::new("limit");
    let client = dir.script("client", "while :; do sleep 0.02; done");
    let output = dir.run(&["--client-timeout=1", "--server-cmd", SERVER, "--client-cmd", &client]);
    assert_eq!(output.status.code(), Some(124));
    assert!(stderr(&output).contains("did not end within 1 s"), "{}", stderr(&output));
}

#[test]
fn what_cannot_run_is_refused_before_anything_starts() {
    let dir = Dir::new("refused");
    for (line, part) in [
        (&["--server-count=1", "--client-ips=127.0.0.1"][..], "one of the two"),
        (&["--server-cmd=no-such-program-anywhere"], "no-such-program-anywhere"),
        (&["--server-shard-ips=192.0.2.1", "--server-cmd=true", "--client-cmd=true"], "192.0.2.1 is not this machine"),
        (&["--follow=client-9", "--server-cmd=true", "--client-cmd=true"], "client-0"),
    ] {
        let output = dir.run(line);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(part), "{}", stderr(&output));
    }
}

/// A stand-in for ssh: runs its last argument with a shell that gets none of our signals, as on another machine.
fn with_stand_in_ssh(dir: &Dir) -> String {
    dir.script("ssh", "for last; do :; done\ncommand -p setsid sh -c \"$last\"");
    format!("{}:{}", dir.0.display(), std::env::var("PATH").unwrap())
}

#[test]
fn over_ssh_words_arrive_unchanged_and_servers_stop() {
    let dir = Dir::new("ssh");
    let path = with_stand_in_ssh(&dir);
    let client = dir.script("client", "for word; do echo \"<$word>\"; done");
    let output = dir
        .launch(&[
            "--execution-backend=ssh",
            "--server-shard-ips=192.0.2.1,192.0.2.2",
            "--client-ips=192.0.2.3",
            "--server-cmd",
            SERVER,
            "--client-cmd",
            &format!("{client} \"it's  $HOME\""),
        ])
        .env("PATH", path)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let log = dir.log("client-0");
    assert!(log.starts_with("<it's  $HOME>\n<--global_id=2>\n"), "{log}");
    assert!(log.contains("<--rdma_control_plane_host=192.0.2.1>\n"), "{log}");
}

#[test]
fn a_server_is_stopped_over_ssh_before_it_leads_its_group() {
    let dir = Dir::new("early-stop");
    let fifo = dir.fifo();
    let path = with_stand_in_ssh(&dir);
    // Never gets as far as making the server a group of its own.
    dir.script(
        "setsid",
        &format!(
            "case $* in *stopped*) echo x >{}; exec sleep 1000;; esac\nexec env -u PATH setsid \"$@\"",
            fifo.display()
        ),
    );
    let client = dir.script("client", &format!("read line <{}", fifo.display()));
    let line = ["--execution-backend=ssh", "--server-cmd", SERVER, "--client-cmd", &client];
    let output = dir.launch(&line).env("PATH", path).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}
