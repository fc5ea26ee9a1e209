//! Requests that wait are interrupted although the server that received them is dead, and no request
//! is left without a reply.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::kept_mount::KeptMount;
use crate::support::command::poll;
use crate::support::fixture::{Fixture, PATIENCE};
use crate::{on_both, without_resend};

on_both! { a_process_that_waits_for_a_lock_can_be_ended }
without_resend! { a_process_that_waits_for_a_lock_can_be_ended }

/// A process that locks a file and then runs `cat`, which ends with its input.
struct Locker(Child);

impl Locker {
    fn start(file: &Path) -> Self {
        let mut command = Command::new("flock");
        command.arg(file).arg("cat").stdin(Stdio::piped()).stdout(Stdio::null());
        Self(command.spawn().unwrap())
    }

    /// Whether it is in flock(2).
    fn is_waiting(&self) -> bool {
        let call = fs::read_to_string(format!("/proc/{}/syscall", self.0.id())).unwrap_or_default();
        call.split(' ').next() == Some(&nix::libc::SYS_flock.to_string())
    }

    /// Sends SIGTERM, which ends it.
    fn terminate(&self) {
        kill(Pid::from_raw(self.0.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
    }

    #[track_caller]
    fn assert_ended_by_the_signal(mut self, log: &str) {
        let status = self.0.wait().unwrap();
        assert_eq!(status.signal(), Some(Signal::SIGTERM as i32), "{status}\n{log}");
    }
}

fn a_process_that_waits_for_a_lock_can_be_ended(fixture: &Fixture) {
    fixture.format(&[]);
    let mount = KeptMount::start(fixture, &[]);
    let path = mount.path().join("f");
    fs::write(&path, "").unwrap();
    let is_locked =
        || !Command::new("flock").arg("-n").arg(&path).arg("true").status().unwrap().success();
    let mut holder = Locker::start(&path);
    assert!(poll(PATIENCE, is_locked));
    let wait = || {
        let waiter = Locker::start(&path);
        assert!(poll(PATIENCE, || waiter.is_waiting() && mount.waiting() > 0), "{}", mount.log());
        waiter
    };
    // After another server has the request.
    let waiter = wait();
    mount.kill_server();
    waiter.terminate();
    waiter.assert_ended_by_the_signal(&mount.log());
    // While no server is there.
    let waiter = wait();
    mount.kill_server_and(|| waiter.terminate());
    waiter.assert_ended_by_the_signal(&mount.log());
    // Before: the server that dies may have received the interrupt.
    let waiter = wait();
    waiter.terminate();
    mount.kill_server();
    waiter.assert_ended_by_the_signal(&mount.log());
    assert!(is_locked(), "{}", mount.log());
    drop(holder.0.stdin.take());
    assert!(holder.0.wait().unwrap().success());
    assert!(!is_locked(), "{}", mount.log());
    mount.unmount();
}
