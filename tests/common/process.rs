//! Another process of a test: this program, run again as its test `child` in a role that its parent names. It does what
//! its parent writes to it, and ends when the parent closes that or dies.

use reclane::time::{Tick, now};
use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

const ROLE: &str = "RECLANE_TEST_ROLE";
const OPTIONS: &str = "RECLANE_TEST_OPTIONS";
/// Begins each line that a child means for its parent: the test harness writes lines too.
const MARK: &str = "@ ";

/// Options that differ from their defaults, by name.
pub type Changes = Vec<(String, String)>;

/// The same with one more or another one.
pub fn with(changes: &[(String, String)], name: &str, value: impl ToString) -> Changes {
    let mut all: Changes = changes.iter().filter(|(known, _)| known != name).cloned().collect();
    all.push((name.to_owned(), value.to_string()));
    all
}

/// The role that the environment names, and its options; None: this is no child. The child ends with its parent,
/// whatever it is doing.
pub fn role() -> Option<(String, Changes)> {
    let role = std::env::var(ROLE).ok()?;
    // SAFETY: a plain system call.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) }, 0);
    let options = std::env::var(OPTIONS).expect("options");
    let split = |line: &str| line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    Some((role, options.lines().map(|line| split(line).expect("name=value")).collect()))
}

/// Tells the parent something.
pub fn say(what: impl core::fmt::Display) {
    println!("\n{MARK}{what}");
}

/// What the parent tells, until it closes that.
pub fn commands() -> impl Iterator<Item = String> {
    std::io::stdin().lock().lines().map_while(Result::ok)
}

/// Another process of the test; killed when dropped.
pub struct Process {
    child: std::process::Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Process {
    pub fn start(role: &str, changes: &[(String, String)]) -> Process {
        let options: Vec<String> = changes.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["child", "--exact", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .env(OPTIONS, options.join("\n"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let input = child.stdin.take().expect("piped");
        let output = BufReader::new(child.stdout.take().expect("piped")).lines();
        Process { child, input, output }
    }

    /// The next line that the child means for us.
    pub fn hear(&mut self) -> String {
        self.try_hear().unwrap_or_else(|| panic!("process {} ended without a word", self.pid()))
    }

    /// The same; None when it has ended.
    pub fn try_hear(&mut self) -> Option<String> {
        for line in &mut self.output {
            let line = line.expect("text");
            // The harness writes the test's name without an end of line.
            if let Some((_, said)) = line.split_once(MARK) {
                return Some(said.to_owned());
            }
        }
        None
    }

    /// Everything that it means for us until it ends.
    pub fn last_words(&mut self) -> Vec<String> {
        core::iter::from_fn(|| self.try_hear()).collect()
    }

    /// As `tell`, to one that may have ended.
    pub fn try_tell(&mut self, command: &str) {
        let _ = writeln!(self.input, "{command}");
    }

    pub fn tell(&mut self, command: &str) {
        writeln!(self.input, "{command}").expect("it listens");
    }

    pub fn ask(&mut self, command: &str) -> String {
        self.tell(command);
        self.hear()
    }

    pub fn number(&mut self, command: &str) -> u64 {
        self.ask(command).parse().expect("a number")
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: libc::c_int) {
        // SAFETY: a plain system call; the process is our child and was not waited for yet.
        assert_eq!(unsafe { libc::kill(self.pid().cast_signed(), signal) }, 0);
    }

    /// SIGSTOP; returns when all of its threads stand still.
    pub fn freeze(&self) {
        self.signal(libc::SIGSTOP);
        let mut status = 0;
        // SAFETY: a plain system call; the process is our child and was not waited for yet.
        let seen = unsafe { libc::waitpid(self.pid().cast_signed(), &raw mut status, libc::WUNTRACED) };
        assert!(seen == self.pid().cast_signed() && libc::WIFSTOPPED(status), "process {} ended", self.pid());
    }

    pub fn thaw(&self) {
        self.signal(libc::SIGCONT);
    }

    /// SIGKILL. Returns the moment before it.
    pub fn kill(&mut self) -> Tick {
        let at = now();
        self.signal(libc::SIGKILL);
        self.child.wait().expect("killed");
        at
    }

    /// Waits until it ends by itself. True: by SIGKILL.
    pub fn ends(&mut self) -> bool {
        use std::os::unix::process::ExitStatusExt;
        self.child.wait().expect("it ends").signal() == Some(libc::SIGKILL)
    }

    pub fn holdings(&self) -> Holdings {
        Holdings::of(&self.pid().to_string())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may be dead already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a process holds.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub struct Holdings {
    pub descriptors: usize,
    pub shared_mappings: usize,
    pub threads: usize,
}

impl Holdings {
    fn of(process: &str) -> Holdings {
        let entries = |what: &str| std::fs::read_dir(format!("/proc/{process}/{what}")).expect("procfs").count();
        let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).expect("procfs");
        Holdings {
            descriptors: entries("fd"),
            shared_mappings: maps.lines().filter(|line| line.contains("memfd:reclane")).count(),
            threads: entries("task"),
        }
    }
}
