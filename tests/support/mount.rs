//! A mount by a client that runs in the foreground; always gone in the end.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};

use super::command::{kill_group, poll, wait};
pub use super::connection::is_mounted;
use super::connection::{Connection, cut};
use super::timeout::{has_limit, on_timeout};

const START: Duration = Duration::from_mins(1);
const UNMOUNT: Duration = Duration::from_mins(1);

/// Ends the client and its mount if this program ends without a word.
const KEEPER: &str = r#"
    read -r word
    [ "$word" = done ] && exit
    kill -KILL "-$1" 2>/dev/null
    umount -l "$2" 2>/dev/null
"#;

/// A mounted volume; unmounted when dropped, by force if need be.
pub struct Mount {
    point: PathBuf,
    log: PathBuf,
    /// Nothing once it has ended.
    client: Option<Child>,
    connection: Option<Connection>,
    keeper: Child,
}

impl Mount {
    /// Starts `command`, which must mount at `point` and stay in the foreground, and waits until
    /// the kernel shows the mount.
    #[track_caller]
    pub fn start(mut command: Command, point: &Path, log: &Path) -> Self {
        // Before anything is started that nobody would end.
        assert!(has_limit(), "a test that mounts runs inside timeout::within");
        fs::create_dir_all(point).unwrap();
        // As the kernel's table has it.
        let point = point.canonicalize().unwrap();
        let into = File::create(log).unwrap();
        command.stdin(Stdio::null()).stdout(into.try_clone().unwrap()).stderr(into);
        let mut client = command.process_group(0).spawn().unwrap();
        let group = client.id();
        let keeper = keeper(group, &point).inspect_err(|_| kill_group(&mut client)).unwrap();
        let late = point.clone();
        on_timeout(move || {
            // First of all, so that whoever hangs is freed; a client that hangs in itself, too.
            cut(&late);
            let _ = Command::new("sh").args(["-c", &format!("kill -KILL -{group}")]).status();
            cut(&late);
        });
        let log = log.to_owned();
        let mut mount = Self { point, log, client: Some(client), connection: None, keeper };
        // Often: how long it takes is what some ask.
        let deadline = Instant::now() + START;
        let mut is_up = || is_mounted(&mount.point) || mount.has_ended();
        while !is_up() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        mount.connection = Connection::of(&mount.point);
        assert!(mount.connection.is_some(), "no mount; the client says:\n{}", mount.log());
        mount
    }

    pub fn path(&self) -> &Path {
        &self.point
    }

    /// The process that was started.
    pub fn pid(&self) -> u32 {
        self.client.as_ref().unwrap().id()
    }

    /// What the client has logged.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Unmounts in good order: everything flushed, the session closed.
    #[track_caller]
    pub fn unmount(mut self) {
        self.close();
    }

    /// As [`Mount::unmount`]; may only be done once.
    #[track_caller]
    pub fn close(&mut self) {
        let gone = || match umount2(&self.point, MntFlags::empty()) {
            Ok(()) => true,
            // A file that was just closed may be held for a moment longer.
            Err(Errno::EBUSY) => false,
            Err(error) => panic!("umount {}: {error}", self.point.display()),
        };
        assert!(poll(UNMOUNT, gone), "{} is still busy", self.point.display());
        self.ended();
    }

    /// Waits for the end of a client that was told to end.
    #[track_caller]
    pub fn ended(&mut self) {
        let mut client = self.client.take().unwrap();
        let Some(status) = wait(&mut client, UNMOUNT) else {
            self.client = Some(client);
            self.end();
            panic!("the client did not end within {UNMOUNT:?}:\n{}", self.log());
        };
        self.end();
        assert!(status.success(), "the client ended with {status}:\n{}", self.log());
    }

    /// Kills the client like a crash would: nothing flushed, the session left behind.
    pub fn kill(mut self) {
        if let Some(mut client) = self.client.take() {
            kill_group(&mut client);
        }
        self.end();
    }

    pub fn has_ended(&mut self) -> bool {
        self.client.as_mut().is_none_or(|client| !matches!(client.try_wait(), Ok(None)))
    }

    /// Leaves nothing behind, whatever has happened before.
    fn end(&mut self) {
        if let Some(mut client) = self.client.take() {
            if let Some(connection) = &self.connection {
                connection.abort();
            }
            kill_group(&mut client);
        }
        cut(&self.point);
        // A pipe that is closed without a word means the worst.
        if let Some(mut pipe) = self.keeper.stdin.take() {
            let _ = std::io::Write::write_all(&mut pipe, b"done\n");
        }
        let _ = self.keeper.wait();
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Some(client) = &mut self.client
            && !thread::panicking()
        {
            let _ = umount2(&self.point, MntFlags::MNT_DETACH);
            if wait(client, Duration::from_secs(5)).is_some() {
                self.client = None;
            }
        }
        self.end();
    }
}

fn keeper(group: u32, point: &Path) -> std::io::Result<Child> {
    Command::new("sh")
        .args(["-c", KEEPER, "keeper", &group.to_string()])
        .arg(point)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // Of its own group: what ends this program by its group must not end the keeper.
        .process_group(0)
        .spawn()
}
