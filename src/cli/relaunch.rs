//! Running this program again: in the background, or without a password in its arguments.
//!
//! The second process gets its real arguments over a socket or a pipe; those visible in the process
//! table have their passwords masked. In the background it also reports over the socket when the
//! volume is mounted, or why it is not.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use super::exit::Exit;
use crate::meta::engine::masked;

/// Environment variable that tells the second process where its arguments come from: [`SOCKET`], or
/// the number of a pipe's descriptor.
const ARGUMENTS_FROM: &str = "_JFS_ARGUMENTS";
const SOCKET: &str = "socket";

/// Bytes; longer than any command line.
const MAX_ARGUMENTS: u64 = 4 << 20;

/// The process that started this one in the background and waits for its report.
#[derive(Debug)]
pub struct Parent(UnixStream);

impl Parent {
    /// Reports that the volume is mounted. Fails if the parent does not wait any more.
    pub fn report_ready(self, text: &str) -> anyhow::Result<()> {
        self.report(Exit::Done, text).context("the process that requested this mount is gone")
    }

    /// Reports why the volume is not mounted. The log has it too, so a failed report is ignored.
    pub fn report_failure(self, exit: Exit, text: &str) {
        let _ = self.report(exit, text);
    }

    fn report(mut self, exit: Exit, text: &str) -> io::Result<()> {
        self.0.write_all(&[exit.number()])?;
        self.0.write_all(text.as_bytes())?;
        self.0.shutdown(Shutdown::Write)
    }
}

/// Returns the arguments that the first process passed on, and that process if it waits; `None` if
/// this is the first process.
pub fn received_arguments() -> anyhow::Result<Option<(Vec<OsString>, Option<Parent>)>> {
    let Ok(source) = std::env::var(ARGUMENTS_FROM) else { return Ok(None) };
    if source != SOCKET {
        let pipe = PathBuf::from(format!("/proc/self/fd/{source}"));
        let words = decode_words(File::open(pipe)?)?;
        // No child is to inherit it.
        nix::unistd::close(source.parse::<i32>()?)?;
        return Ok(Some((words, None)));
    }
    close_inherited_files();
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    nix::unistd::dup2_stdin(File::open("/dev/null")?)?;
    nix::unistd::setsid()?;
    let words = decode_words(&socket)?;
    Ok(Some((words, Some(Parent(socket)))))
}

/// Runs this program in the background, and returns the exit status and text that it reports.
pub fn start_in_background(words: &[OsString], log: &Path) -> anyhow::Result<(u8, String)> {
    let file = open_log(log).with_context(|| {
        format!("log file {}: cannot be written; choose another with --log", log.display())
    })?;
    let (mut ours, theirs) = UnixStream::pair()?;
    let mut child = this_program(words)
        .env(ARGUMENTS_FROM, SOCKET)
        .stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs)))
        .stdout(file.try_clone()?)
        .stderr(file)
        .spawn()
        .context("cannot start the program in the background")?;
    ours.write_all(&encode_words(words))?;
    ours.shutdown(Shutdown::Write)?;
    let mut report = Vec::new();
    ours.read_to_end(&mut report)?;
    let Some((number, text)) = report.split_first() else {
        let status = child.wait()?;
        bail!("the background process exited ({status}); see {}", log.display())
    };
    Ok((*number, String::from_utf8_lossy(text).into_owned()))
}

/// Replaces this process by one whose visible arguments have no passwords. Returns only on failure.
pub fn exec_without_passwords(words: &[OsString]) -> anyhow::Error {
    let exec = || -> anyhow::Result<io::Error> {
        let (read, write) = nix::unistd::pipe()?;
        File::from(write).write_all(&encode_words(words))?;
        // A pipe made this way stays open across exec.
        let number = std::os::fd::AsRawFd::as_raw_fd(&read).to_string();
        Ok(this_program(words).env(ARGUMENTS_FROM, number).exec())
    };
    match exec() {
        Ok(error) => anyhow::Error::new(error).context("cannot run the program again"),
        Err(error) => error,
    }
}

/// Returns how to run a program of this kind so that its visible arguments have no passwords. The pipe
/// has to stay open until it has been started.
pub fn command_without_passwords(
    program: &Path,
    words: &[OsString],
) -> io::Result<(Command, Option<OwnedFd>)> {
    let mut command = Command::new(program);
    // What told this process about its own arguments is not meant for another.
    command.env_remove(ARGUMENTS_FROM);
    if !has_password(words) {
        command.args(words);
        return Ok((command, None));
    }
    let (read, write) = nix::unistd::pipe()?;
    let all: Vec<OsString> = [OsString::from(program)].into_iter().chain(words.to_vec()).collect();
    File::from(write).write_all(&encode_words(&all))?;
    // A pipe made this way is inherited.
    command.env(ARGUMENTS_FROM, std::os::fd::AsRawFd::as_raw_fd(&read).to_string());
    command.args(words.iter().map(|word| mask_password(word)));
    Ok((command, Some(read)))
}

/// Closes descriptors inherited by accident, such as a pipe whose reader would wait for ever.
fn close_inherited_files() {
    let open = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let open: Vec<i32> = open.filter_map(|file| file.file_name().to_str()?.parse().ok()).collect();
    for number in open.into_iter().filter(|number| *number > 2) {
        // The descriptor used for listing is closed already.
        let _ = nix::unistd::close(number);
    }
}

/// Returns whether the arguments show a password in the process table.
pub fn has_password(words: &[OsString]) -> bool {
    // Arguments that do not fit into a pipe cannot be passed on.
    words.iter().any(|word| mask_password(word) != *word) && encode_words(words).len() < (60 << 10)
}

fn this_program(words: &[OsString]) -> Command {
    let program = std::env::current_exe().ok().filter(|path| path.exists());
    let mut command = Command::new(program.unwrap_or_else(|| "/proc/self/exe".into()));
    command.args(words.iter().skip(1).map(|word| mask_password(word)));
    if let Some(name) = words.first() {
        command.arg0(name);
    }
    command
}

fn mask_password(word: &OsStr) -> OsString {
    word.to_str().map_or_else(|| word.to_owned(), |word| masked(word).into())
}

/// Joins the words by NUL bytes, which cannot be part of them.
fn encode_words(words: &[OsString]) -> Vec<u8> {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    words.join(&0)
}

fn decode_words(from: impl Read) -> anyhow::Result<Vec<OsString>> {
    let mut bytes = Vec::new();
    from.take(MAX_ARGUMENTS).read_to_end(&mut bytes)?;
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
    fn words_survive_encoding() {
        let sent = words("jfs-mount mount redis://:sesame@host/1 /mnt  -d");
        assert_eq!(decode_words(&encode_words(&sent)[..]).unwrap(), sent);
    }

    #[test]
    fn passwords_are_detected_and_masked() {
        let secret = words("jfs-mount mount redis://:sesame@host/1 /mnt");
        assert!(
            has_password(&secret) && !has_password(&words("jfs-mount mount redis://host /mnt"))
        );
        let command = this_program(&secret);
        let shown: Vec<_> = command.get_args().collect();
        assert_eq!(shown, ["mount", "redis://:****@host/1", "/mnt"]);
    }
}
