//! Replacing the keeper's program while it runs: names, descriptors and connections survive.
//!
//! The process executes another file. Its state waits for the new program in a socket that is its
//! standard input: a memfd with the table, then all descriptors, in the order of the table. So no
//! descriptor has to be recognised by its number, and if the execution fails, nothing has changed.

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::unistd::{dup2_stdin, execv};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use serde::{Deserialize, Serialize};

use super::connection::Connection;
use super::listener::Listener;
use super::ownership::{ClientId, Saved};
use super::packet::{self, MAX_BATCH};
use super::server::{Server, Timing};
use super::supervise;

/// The format of the table that this program writes and reads.
pub const FORMAT: u32 = 1;

/// How long the other program may take to say that it reads the table.
const CHECK_LIMIT: Duration = Duration::from_secs(5);
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// Unknown fields are ignored.
#[derive(Debug, Serialize, Deserialize)]
struct Table {
    format: u32,
    socket: OsString,
    /// Each name and how many descriptors it has.
    names: Vec<(String, usize)>,
    clients: Vec<Client>,
    next_client: ClientId,
    ownership: Saved,
    supervised: Option<supervise::Saved>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Client {
    id: ClientId,
    pid: i32,
    instance: String,
    greeted: bool,
}

/// Executes another program with the state of this one. Returns only on failure; nothing has changed
/// then.
pub fn replace(
    server: &Server,
    supervised: Option<supervise::Saved>,
    program: &Path,
    words: &[OsString],
) -> io::Error {
    let exec = || -> io::Result<()> {
        let path = CString::new(program.as_os_str().as_bytes())?;
        let words: Vec<CString> =
            words.iter().map(|word| CString::new(word.as_bytes())).collect::<Result<_, _>>()?;
        let state = save(server, supervised)?;
        dup2_stdin(&state)?;
        // Not by the standard library, which would admit signals that are blocked until they are read.
        execv(&path, &words)?;
        Ok(())
    };
    let error = exec().err().unwrap_or_else(|| io::Error::other("the program was not replaced"));
    let _ = close_stdin();
    io::Error::new(error.kind(), format!("{}: {error}", program.display()))
}

/// Fails if a program does not say that it reads the table of this one. `words` come before the question.
pub fn check(program: &Path, words: &[OsString]) -> io::Result<()> {
    let mut child = Command::new(program)
        .args(words)
        .arg("--can-resume")
        .arg(FORMAT.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| io::Error::other(format!("{}: {error}", program.display())))?;
    let until = Instant::now() + CHECK_LIMIT;
    let status = loop {
        match child.try_wait()? {
            Some(status) => break status,
            None if Instant::now() < until => thread::sleep(CHECK_INTERVAL),
            None => {
                child.kill()?;
                break child.wait()?;
            }
        }
    };
    if status.success() {
        return Ok(());
    }
    let text = format!("{}: does not continue this keeper ({status})", program.display());
    Err(io::Error::other(text))
}

/// Continues from the state that the program before has left at standard input.
pub fn resume(timing: Timing) -> io::Result<(Server, Option<supervise::Saved>)> {
    let state = io::stdin().as_fd().try_clone_to_owned()?;
    close_stdin()?;
    let mut all = Vec::new();
    loop {
        let batch = packet::receive_batch(&state)?;
        if batch.is_empty() {
            break;
        }
        all.extend(batch);
    }
    let mut all = all.into_iter();
    let mut next = || all.next().ok_or_else(|| io::Error::other("descriptors are missing"));
    let mut file = File::from(next()?);
    file.rewind()?;
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    let table: Table = serde_json::from_slice(&text)?;
    if table.format != FORMAT {
        return Err(io::Error::other(format!("a table of unknown format {}", table.format)));
    }
    let listener = Listener { socket: next()?, lock: next()?, path: PathBuf::from(table.socket) };
    let mut server = Server::on(listener, timing);
    for (name, count) in table.names {
        let held: Vec<OwnedFd> = (0..count).map(|_| next()).collect::<io::Result<_>>()?;
        server.names.insert(name, held.into());
    }
    let now = Instant::now();
    for Client { id, pid, instance, greeted } in table.clients {
        let hello_until = (!greeted).then(|| now + timing.hello_limit);
        server.clients.insert(id, Connection::restored(next()?, pid, instance, hello_until));
    }
    server.next_client = table.next_client;
    server.ownership.restore(table.ownership, now);
    Ok((server, table.supervised))
}

/// Returns the socket with the state.
fn save(server: &Server, supervised: Option<supervise::Saved>) -> io::Result<OwnedFd> {
    // A client that does not read loses its connection: what waits for it is not part of the state.
    let clients = || server.clients.iter().filter(|(_, client)| !client.is_blocked());
    let table = Table {
        format: FORMAT,
        socket: server.listener.path.clone().into(),
        names: server.names.iter().map(|(name, held)| (name.clone(), held.len())).collect(),
        clients: clients()
            .map(|(id, client)| Client {
                id: *id,
                pid: client.pid,
                instance: client.instance.clone(),
                greeted: client.hello_until.is_none(),
            })
            .collect(),
        next_client: server.next_client,
        ownership: server.ownership.save(Instant::now()),
        supervised,
    };
    let mut file = File::from(memfd_create("jfs-keeper", MemfdFlags::CLOEXEC)?);
    file.write_all(&serde_json::to_vec(&table)?)?;
    let mut all: Vec<BorrowedFd<'_>> = vec![file.as_fd()];
    all.extend([server.listener.socket.as_fd(), server.listener.lock.as_fd()]);
    all.extend(server.names.values().flat_map(|held| held.iter()).map(AsFd::as_fd));
    all.extend(clients().map(|(_, client)| client.as_fd()));
    let (write, read) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    for batch in all.chunks(MAX_BATCH) {
        packet::send(&write, &[0], batch, false)?;
    }
    Ok(read)
}

/// Puts nothing in the place of standard input.
pub fn close_stdin() -> io::Result<()> {
    dup2_stdin(File::open("/dev/null")?)?;
    Ok(())
}
