//! Starting this program again: in the background, or without a password among its arguments.
//!
//! The second program gets its real arguments over a socket or a pipe; those that everybody sees in
//! the process table have no password in them. In the background it tells over the same socket
//! when the volume is mounted, or why it is not.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use super::exit::Exit;
use crate::meta::engine::masked;

/// Tells the second program how it gets its arguments.
const HOW: &str = "_JFS_ARGUMENTS";
const BY_SOCKET: &str = "socket";

/// More than any command line has.
const LONGEST: u64 = 4 << 20;

/// Whoever started this program in the background and waits.
#[derive(Debug)]
pub struct Caller(UnixStream);

impl Caller {
    /// The volume is mounted. Fails if nobody waits any more.
    pub fn ready(self, text: &str) -> anyhow::Result<()> {
        self.tell(Exit::Done, text).context("whoever started this mount is gone")
    }

    /// It is not. Whoever does not hear it has the log.
    pub fn failed(self, exit: Exit, text: &str) {
        let _ = self.tell(exit, text);
    }

    fn tell(mut self, exit: Exit, text: &str) -> io::Result<()> {
        self.0.write_all(&[exit.number()])?;
        self.0.write_all(text.as_bytes())?;
        self.0.shutdown(Shutdown::Write)
    }
}

/// What the first program passed on: the arguments, and whom to tell, if this is in the background.
pub fn passed_on() -> anyhow::Result<Option<(Vec<OsString>, Option<Caller>)>> {
    let Ok(how) = std::env::var(HOW) else { return Ok(None) };
    if how != BY_SOCKET {
        let pipe = PathBuf::from(format!("/proc/self/fd/{how}"));
        let words = read_words(File::open(pipe)?)?;
        // Nobody else is to find it.
        nix::unistd::close(how.parse::<i32>()?)?;
        return Ok(Some((words, None)));
    }
    close_the_rest();
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    nix::unistd::dup2_stdin(File::open("/dev/null")?)?;
    nix::unistd::setsid()?;
    let words = read_words(&socket)?;
    Ok(Some((words, Some(Caller(socket)))))
}

/// Starts this program again, in the background, and waits for what it says.
pub fn in_background(words: &[OsString], log: &Path) -> anyhow::Result<(u8, String)> {
    let file = open_log(log).with_context(|| {
        format!("log file {}: cannot be written; choose another with --log", log.display())
    })?;
    let (mut ours, theirs) = UnixStream::pair()?;
    let mut program = again(words)?
        .env(HOW, BY_SOCKET)
        .stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs)))
        .stdout(file.try_clone()?)
        .stderr(file)
        .spawn()
        .context("starting the program in the background")?;
    ours.write_all(&written(words))?;
    ours.shutdown(Shutdown::Write)?;
    let mut answer = Vec::new();
    ours.read_to_end(&mut answer)?;
    match answer.split_first() {
        Some((number, text)) => Ok((*number, String::from_utf8_lossy(text).into_owned())),
        None => {
            let status = program.wait()?;
            bail!("the program ended in the background ({status}); see {}", log.display())
        }
    }
}

/// Becomes the same program without passwords among its arguments. Returns only on failure.
pub fn without_passwords(words: &[OsString]) -> anyhow::Error {
    let become_it = || -> anyhow::Result<io::Error> {
        let (read, write) = nix::unistd::pipe()?;
        File::from(write).write_all(&written(words))?;
        // Not closed by becoming another program.
        let number = std::os::fd::AsRawFd::as_raw_fd(&read).to_string();
        Ok(again(words)?.env(HOW, number).exec())
    };
    match become_it() {
        Ok(error) => anyhow::Error::new(error).context("starting the program again"),
        Err(error) => error,
    }
}

/// Descriptors that came along by chance: whoever waits at the other end would wait for ever.
fn close_the_rest() {
    let open = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let open: Vec<i32> = open.filter_map(|file| file.file_name().to_str()?.parse().ok()).collect();
    for number in open.into_iter().filter(|number| *number > 2) {
        // The one by which they were listed is closed already.
        let _ = nix::unistd::close(number);
    }
}

/// Whether a word shows a password to everybody who looks at the process table.
pub fn has_password(words: &[OsString]) -> bool {
    // What does not fit into a pipe stays where it is.
    words.iter().any(|word| shown(word) != *word) && written(words).len() < (60 << 10)
}

fn again(words: &[OsString]) -> anyhow::Result<Command> {
    let program = std::env::current_exe().ok().filter(|path| path.exists());
    let mut command = Command::new(program.unwrap_or_else(|| "/proc/self/exe".into()));
    command.args(words.iter().skip(1).map(|word| shown(word)));
    if let Some(name) = words.first() {
        command.arg0(name);
    }
    Ok(command)
}

fn shown(word: &OsStr) -> OsString {
    word.to_str().map_or_else(|| word.to_owned(), |word| masked(word).into())
}

/// Words do not have zeros in them.
fn written(words: &[OsString]) -> Vec<u8> {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    words.join(&0)
}

fn read_words(from: impl Read) -> anyhow::Result<Vec<OsString>> {
    let mut bytes = Vec::new();
    from.take(LONGEST).read_to_end(&mut bytes)?;
    Ok(bytes.split(|byte| *byte == 0).map(|word| OsString::from_vec(word.to_vec())).collect())
}

fn open_log(path: &Path) -> io::Result<File> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    OpenOptions::new().create(true).append(true).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn words_arrive_as_they_were_sent() {
        let sent = words("jfs-mount mount redis://:sesame@host/1 /mnt  -d");
        assert_eq!(read_words(&written(&sent)[..]).unwrap(), sent);
    }

    #[test]
    fn passwords_are_seen_and_hidden() {
        let secret = words("jfs-mount mount redis://:sesame@host/1 /mnt");
        assert!(
            has_password(&secret) && !has_password(&words("jfs-mount mount redis://host /mnt"))
        );
        let command = again(&secret).unwrap();
        let shown: Vec<_> = command.get_args().collect();
        assert_eq!(shown, ["mount", "redis://:****@host/1", "/mnt"]);
    }
}
