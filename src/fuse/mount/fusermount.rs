//! Mounting by the distribution's setuid program, for users other than root. It opens the device,
//! mounts, and passes the descriptor back over a socket.

use std::ffi::OsString;
use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use nix::errno::Errno;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};

use super::{MountOptions, SUBTYPE, Unmount, errors, joined, kernel_options};
use crate::error::{Error, Result};

const PROGRAM: &str = "fusermount3";
/// The variable that passes the descriptor of the socket to the program.
const SOCKET: &str = "_FUSE_COMMFD";

pub fn mount(point: &Path, options: &MountOptions) -> Result<OwnedFd> {
    let mut list: Vec<OsString> = vec![
        format!("fsname={}", escape(&options.source)).into(),
        format!("subtype={SUBTYPE}").into(),
    ];
    list.extend(kernel_options(options));
    if options.read_only {
        list.push("ro".into());
    }
    list.extend(options.more.iter().map(Into::into));
    let (ours, theirs) = UnixStream::pair().map_err(|error| failed(point, &error))?;
    let program = Command::new(PROGRAM)
        .arg("-o")
        .arg(joined(&list))
        .arg("--")
        .arg(point)
        // The socket is its standard input: passing any other descriptor takes unsafe code.
        .env(SOCKET, "0")
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| errors::no_program(PROGRAM, &error))?;
    let received = receive(&ours);
    let output = program.wait_with_output().map_err(|error| failed(point, &error))?;
    match received {
        Ok(Some(device)) if output.status.success() => Ok(device),
        Err(errno) => Err(failed(point, &errno)),
        Ok(_) => Err(failed(point, &said(&output))),
    }
}

pub fn unmount(point: &Path, how: Unmount) -> Result<()> {
    let mut command = Command::new(PROGRAM);
    command.arg("-u");
    if how != Unmount::Plain {
        command.arg("-z");
    }
    let output = command.arg("--").arg(point).stdin(Stdio::null()).output();
    let output = output.map_err(|error| errors::no_program(PROGRAM, &error))?;
    if output.status.success() { Ok(()) } else { Err(failed(point, &said(&output))) }
}

/// Receives the descriptor from the program; `None` if it exits without sending one.
fn receive(socket: &UnixStream) -> nix::Result<Option<OwnedFd>> {
    let mut byte = [0];
    let mut slices = [IoSliceMut::new(&mut byte)];
    let mut space = nix::cmsg_space!(RawFd);
    let message = loop {
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        match recvmsg::<()>(socket.as_raw_fd(), &mut slices, Some(&mut space), flags) {
            Err(Errno::EINTR) => {}
            message => break message?,
        }
    };
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(descriptors) = control
            && let Some(descriptor) = descriptors.first()
        {
            return Ok(Some(own(*descriptor)));
        }
    }
    Ok(None)
}

#[allow(unsafe_code, reason = "a descriptor that arrives in a message has no owner yet")]
fn own(descriptor: RawFd) -> OwnedFd {
    // SAFETY: the kernel has just created this descriptor for this process; nothing else uses it.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}

/// Escapes commas, which separate options.
fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace(',', "\\,")
}

fn said(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    match text.trim() {
        "" => format!("{PROGRAM}: {}", output.status),
        text => text.to_owned(),
    }
}

fn failed(point: &Path, cause: &impl ToString) -> Error {
    Error::Refused(format!("{}: {}", point.display(), cause.to_string()))
}
