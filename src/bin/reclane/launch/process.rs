//! One running process and its group.

use super::plan::Process;
use super::signals;
use reclane::error::{Error, Result};
use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

/// A started process; its group has the process's own number. Dropping it kills the group.
pub struct Running {
    /// What it is.
    pub plan: Process,
    /// Its output.
    pub log: PathBuf,
    child: Child,
    ended: Option<ExitStatus>,
}

impl Running {
    /// Starts it in a group of its own, so that a terminal's Ctrl-C reaches us alone and stopping has one order. Must be
    /// called by a thread that lives as long as the process shall: the kernel kills the child when that thread ends.
    pub fn start(plan: &Process, log_dir: &Path) -> Result<Running> {
        let name = plan.name();
        let log = log_dir.join(format!("{name}.log"));
        let output = File::create(&log)
            .map_err(|source| Error::os(format_args!("creating the log {}", log.display()), &source))?;
        let errors = output.try_clone().map_err(|source| Error::os("duplicating the log's descriptor", &source))?;
        let mut command = Command::new(&plan.words[0]);
        command
            .args(&plan.words[1..])
            .envs(plan.environment.iter().map(|(name, value)| (name, value)))
            .stdin(if plan.held_by_input { Stdio::piped() } else { Stdio::null() })
            .stdout(output)
            .stderr(errors)
            .process_group(0);
        let parent = std::process::id();
        // SAFETY: between fork and exec only async-signal-safe calls are made: prctl, getppid, pthread_sigmask.
        unsafe { command.pre_exec(move || before_exec(parent)) };
        let child = command
            .spawn()
            .map_err(|source| Error::os(format_args!("starting {name} ({})", plan.words[0]), &source))?;
        Ok(Running { plan: plan.clone(), log, child, ended: None })
    }

    /// How it ended, if it did. What it left behind of its group is killed then.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() && self.has_exited() {
            // Not yet waited for, so its number still names this group and no other.
            self.signal_group(libc::SIGKILL);
            self.ended = self.child.wait().ok();
        }
        self.ended
    }

    fn has_exited(&self) -> bool {
        let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
        let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        // SAFETY: info is writable and zeroed, which is a valid siginfo_t; waitid leaves si_pid 0 when nothing has ended.
        unsafe {
            libc::waitid(libc::P_PID, self.child.id(), info.as_mut_ptr(), options) == 0
                && info.assume_init().si_pid() != 0
        }
    }

    /// Asks it to stop: the whole group, or a process on another machine by the end of its input. The ssh of the latter is
    /// left alone: it ends when that process has, with its exit code and its last words.
    pub fn ask_to_stop(&mut self) {
        if self.plan.held_by_input {
            drop(self.child.stdin.take());
        } else if self.ended.is_none() {
            self.signal_group(libc::SIGTERM);
        }
    }

    /// Kills it and its group, unless it ended before.
    pub fn kill(&mut self) {
        if self.ended().is_none() {
            self.signal_group(libc::SIGKILL);
            self.ended = self.child.wait().ok();
        }
    }

    fn signal_group(&self, signal: i32) {
        if let Ok(group) = libc::pid_t::try_from(self.child.id()) {
            // SAFETY: killpg takes no pointers. The number is our child's, who was not waited for yet.
            unsafe { libc::killpg(group, signal) };
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// In the child: die with the parent, and start with no signal blocked.
fn before_exec(parent: u32) -> std::io::Result<()> {
    // SAFETY: PR_SET_PDEATHSIG takes a signal number and nothing else.
    if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    if std::os::unix::process::parent_id() != parent {
        // The parent died before the kernel was told to watch it.
        return Err(std::io::Error::from_raw_os_error(libc::ESRCH));
    }
    signals::unblock_all();
    Ok(())
}

/// The exit code a shell would show, and the words for it.
pub fn verdict(status: ExitStatus) -> (u8, String) {
    match (status.code(), status.signal()) {
        (Some(code), _) => (u8::try_from(code).unwrap_or(u8::MAX), format!("exited with code {code}")),
        (None, Some(signal)) => {
            (u8::try_from(128 + signal).unwrap_or(u8::MAX), format!("was ended by signal {signal}"))
        }
        (None, None) => (1, "ended".to_owned()),
    }
}
