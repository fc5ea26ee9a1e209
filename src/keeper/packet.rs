//! Packets with descriptors over a `SOCK_SEQPACKET` socket.
//!
//! A received descriptor is closed on exec from the beginning, and closed when its owner goes, also when
//! the packet turns out to be malformed.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use super::protocol::{MAX_DESCRIPTORS, MAX_PACKET};

/// One more than allowed, to notice it.
const ROOM: usize = MAX_DESCRIPTORS + 1;
/// The kernel sends at most this many with one packet.
pub const MAX_BATCH: usize = 253;

/// What a receiver gets from its socket.
#[derive(Debug)]
pub enum Received {
    Packet(Packet),
    /// Nothing at the moment.
    Nothing,
    /// The other side has closed the connection.
    End,
}

/// One packet.
#[derive(Debug)]
pub struct Packet {
    pub bytes: Vec<u8>,
    pub descriptors: Vec<OwnedFd>,
    /// The packet was longer than [`MAX_PACKET`], or had more descriptors than any message has.
    pub is_oversized: bool,
    /// This process has too many open files to receive all descriptors.
    pub lacks_descriptors: bool,
}

/// Sends one packet. `WouldBlock`: the receiver has not read the packets before it.
pub fn send(socket: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>], wait: bool) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_BATCH))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many descriptors"));
    }
    let flags = if wait { SendFlags::empty() } else { SendFlags::DONTWAIT };
    let bytes = [IoSlice::new(bytes)];
    loop {
        match sendmsg(&socket, &bytes, &mut control, flags | SendFlags::NOSIGNAL) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Receives one packet of a client or of the keeper.
pub fn receive(socket: impl AsFd, wait: bool) -> io::Result<Received> {
    let mut bytes = [0; MAX_PACKET];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(ROOM))];
    let Some((length, flags, descriptors)) =
        receive_into(socket.as_fd(), &mut bytes, &mut space, wait)?
    else {
        return Ok(Received::Nothing);
    };
    // No message is empty.
    if length == 0 {
        return Ok(Received::End);
    }
    let is_cut = flags.contains(ReturnFlags::CTRUNC);
    let too_many = descriptors.len() > MAX_DESCRIPTORS;
    Ok(Received::Packet(Packet {
        bytes: bytes.get(..length).unwrap_or_default().to_vec(),
        is_oversized: flags.contains(ReturnFlags::TRUNC) || too_many,
        lacks_descriptors: is_cut && !too_many,
        descriptors,
    }))
}

/// Receives a batch of descriptors that this program sent to itself; empty at the end.
pub fn receive_batch(socket: impl AsFd) -> io::Result<Vec<OwnedFd>> {
    let mut bytes = [0; 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_BATCH))];
    match receive_into(socket.as_fd(), &mut bytes, &mut space, true)? {
        Some((_, flags, _)) if flags.contains(ReturnFlags::CTRUNC) => {
            Err(io::Error::other("too many open files to receive the descriptors"))
        }
        Some((_, _, descriptors)) => Ok(descriptors),
        None => Ok(Vec::new()),
    }
}

type Raw = (usize, ReturnFlags, Vec<OwnedFd>);

fn receive_into(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8],
    space: &mut [MaybeUninit<u8>],
    wait: bool,
) -> io::Result<Option<Raw>> {
    let flags = if wait { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
    let mut control = RecvAncillaryBuffer::new(space);
    let mut into = [IoSliceMut::new(bytes)];
    let message = loop {
        match recvmsg(socket, &mut into, &mut control, flags | RecvFlags::CMSG_CLOEXEC) {
            Ok(message) => break message,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    };
    let mut descriptors = Vec::new();
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = part {
            descriptors.extend(fds);
        }
    }
    Ok(Some((message.bytes, message.flags, descriptors)))
}
