//! A mount by the Go client that is always gone in the end.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::command::{kill_group, poll, run, wait};
use super::timeout::{has_limit, on_timeout};

const START: Duration = Duration::from_secs(30);
const UNMOUNT: Duration = Duration::from_secs(20);

/// A mounted volume; unmounted when dropped, by force if need be.
pub struct Mount {
    point: PathBuf,
    log: PathBuf,
    /// Nothing once it has ended.
    client: Option<Child>,
}

impl Mount {
    /// Starts `command`, which must mount at `point` and stay in the foreground, and waits until
    /// the kernel shows the mount.
    #[track_caller]
    pub fn start(mut command: Command, point: &Path, log: &Path) -> Self {
        // Before anything is started that nobody would end.
        assert!(has_limit(), "a test that mounts runs inside timeout::within");
        fs::create_dir_all(point).unwrap();
        let into = File::create(log).unwrap();
        command.stdin(Stdio::null()).stdout(into.try_clone().unwrap()).stderr(into);
        let client = command.process_group(0).spawn().unwrap();
        let group = client.id();
        let mut mount = Self { point: point.to_owned(), log: log.to_owned(), client: Some(client) };
        let late = mount.point.clone();
        on_timeout(move || {
            // Killing the client ends the connection, which frees whoever hangs in it.
            let _ = Command::new("sh").args(["-c", &format!("kill -KILL -{group}")]).status();
            unmount_lazily(&late);
        });
        let up = poll(START, || is_mounted(&mount.point) || mount.has_ended());
        assert!(up && is_mounted(&mount.point), "no mount; the client says:\n{}", mount.log());
        mount
    }

    pub fn path(&self) -> &Path {
        &self.point
    }

    /// What the client has logged.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Unmounts in good order: everything flushed, the session closed.
    #[track_caller]
    pub fn unmount(mut self) {
        let busy = || {
            let mut command = Command::new("umount");
            command.arg(&self.point);
            !run(command, UNMOUNT).status.success()
        };
        // A file that was just closed may be held for a moment longer.
        assert!(poll(UNMOUNT, || !busy()), "{} is still busy", self.point.display());
        let mut client = self.client.take().unwrap();
        let Some(status) = wait(&mut client, UNMOUNT) else {
            kill_group(&mut client);
            panic!("the client did not end after umount:\n{}", self.log());
        };
        assert!(status.success(), "the client ended with {status}:\n{}", self.log());
    }

    /// Kills the client like a crash would: nothing flushed, the session left behind.
    pub fn kill(mut self) {
        if let Some(mut client) = self.client.take() {
            kill_group(&mut client);
        }
        unmount_lazily(&self.point);
    }

    fn has_ended(&mut self) -> bool {
        self.client.as_mut().is_none_or(|client| !matches!(client.try_wait(), Ok(None)))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let Some(mut client) = self.client.take() else { return };
        unmount_lazily(&self.point);
        if wait(&mut client, Duration::from_secs(5)).is_none() {
            kill_group(&mut client);
        }
    }
}

/// Whether something is mounted there. Reads the kernel's table: a stat could hang.
pub fn is_mounted(point: &Path) -> bool {
    let point = point.to_string_lossy();
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    table.lines().any(|line| line.split(' ').nth(4) == Some(&point))
}

fn unmount_lazily(point: &Path) {
    if is_mounted(point) {
        let _ = Command::new("umount").arg("-l").arg(point).stderr(Stdio::null()).status();
    }
}
