//! Decodes a message and calls the method that handles it.

use std::sync::Arc;

use fuser::InitFlags;
use nix::errno::Errno;
use tracing::{error, warn};

use super::connection::Connection;
use super::receive_buffer::{BufferPool, Payload, ReceiveBuffer};
use super::reply::Reply;
use crate::fuse::file_system::FileSystem;
use crate::fuse::protocol::abi::{self, Opcode};
use crate::fuse::protocol::decode::{Header, Operation, Request};
use crate::fuse::protocol::encode::{ReplyBody, ReplyFormat};

/// A request without its arguments.
struct RequestContext<'a> {
    connection: &'a Arc<Connection>,
    request: Request,
    opcode: Opcode,
    length: usize,
}

impl RequestContext<'_> {
    fn reply<T: ReplyBody>(&self) -> Reply<T> {
        self.reply_of(0)
    }

    /// Creates a reply with room for this many bytes.
    fn reply_of<T: ReplyBody>(&self, size: u32) -> Reply<T> {
        let format = ReplyFormat { opcode: self.opcode, size };
        Reply::new(self.connection, self.request, format, self.length)
    }
}

/// Whether a message may need so much copying that other messages should not wait for it.
pub fn is_bulk(message: &[u8]) -> bool {
    const LARGE: usize = 32 << 10;
    let Ok(header) = Header::decode(message) else { return false };
    match Opcode::from_u32(header.opcode) {
        Some(Opcode::Write) => message.len() >= LARGE,
        // The size is known only after decoding; most reads are readahead.
        Some(Opcode::Read) => true,
        _ => false,
    }
}

/// The number of the request in a message that needs a reply.
pub fn needs_reply(message: &[u8]) -> Option<u64> {
    let header = Header::decode(message).ok()?;
    let opcode = Opcode::from_u32(header.opcode);
    let no_reply = [Opcode::Forget, Opcode::BatchForget, Opcode::Interrupt, Opcode::NotifyReply];
    let needs_reply = opcode.is_none_or(|opcode| !no_reply.contains(&opcode));
    needs_reply.then_some(header.request.unique)
}

/// Has the file system handle the message of this length in the buffer. `is_repeated` if another
/// process received it before.
pub fn dispatch<F: FileSystem>(
    file_system: &F,
    connection: &Arc<Connection>,
    agreed: InitFlags,
    buffer: &mut ReceiveBuffer,
    pool: &Arc<BufferPool>,
    length: usize,
    is_repeated: bool,
) {
    let message = buffer.message(length);
    let Ok(header) = Header::decode(message) else {
        // Without a header there is nothing to reply to.
        error!(length, "the kernel sent a message without a valid header");
        return;
    };
    let request = header.request;
    let Some(opcode) = Opcode::from_u32(header.opcode) else {
        connection.refuse(request.unique, Errno::ENOSYS);
        return;
    };
    let body = header.body(message);
    let Ok(operation) = body.and_then(|body| Operation::decode(opcode, body, agreed)) else {
        warn!(?request, ?opcode, length, "the kernel sent a malformed request");
        if !matches!(opcode, Opcode::Forget | Opcode::BatchForget | Opcode::Interrupt) {
            connection.refuse(request.unique, Errno::EINVAL);
        }
        return;
    };
    if (is_repeated || request.is_resent())
        && let Some(ledger) = &connection.ledger
        && ledger.is_suspect(request.unique & !abi::RESENT)
    {
        error!(
            ?request,
            ?opcode,
            "several processes died while they handled this request: refused"
        );
        connection.refuse(request.unique, Errno::EIO);
        return;
    }
    let context = RequestContext { connection, request, opcode, length };
    if let Operation::Write(write) = operation {
        let data = Payload { buffer, pool, length: usize::try_from(write.size).unwrap_or(0) };
        return file_system.write(&request, write, data, context.reply());
    }
    call_handler(file_system, &context, operation);
}

#[allow(clippy::too_many_lines, reason = "one line for each operation")]
fn call_handler<F: FileSystem>(fs: &F, context: &RequestContext<'_>, operation: Operation<'_>) {
    let (q, r) = (context, &context.request);
    match operation {
        Operation::Interrupt { unique } => {
            if let Some(again) = q.connection.interrupts.interrupt(r.unique, unique) {
                q.connection.refuse(again, Errno::EAGAIN);
            }
        }
        Operation::Forget { lookups } => fs.forget(r.ino, lookups),
        Operation::BatchForget(forgets) => {
            forgets.iter().for_each(|(ino, lookups)| fs.forget(ino, lookups));
        }
        // This process never retrieves anything from the kernel's cache.
        Operation::NotifyReply => {}
        Operation::Destroy => {
            q.reply::<()>().send(Ok(()));
        }
        // INIT is handled where a session starts, writes where their buffer is available.
        Operation::Init(_) | Operation::Write(_) => q.connection.refuse(r.unique, Errno::EIO),
        Operation::Lookup { name } => fs.lookup(r, name, q.reply()),
        Operation::Getattr { fh } => fs.getattr(r, fh, q.reply()),
        Operation::Setattr(change) => fs.setattr(r, change, q.reply()),
        Operation::Statx(ask) => fs.statx(r, ask, q.reply()),
        Operation::Access { mask } => fs.access(r, mask, q.reply()),
        Operation::Readlink => fs.readlink(r, q.reply()),
        Operation::Symlink { name, target } => fs.symlink(r, name, target, q.reply()),
        Operation::Mknod(node) => fs.mknod(r, node, q.reply()),
        Operation::Mkdir { name, mode, umask } => fs.mkdir(r, name, mode, umask, q.reply()),
        Operation::Unlink { name } => fs.unlink(r, name, q.reply()),
        Operation::Rmdir { name } => fs.rmdir(r, name, q.reply()),
        Operation::Rename(rename) => fs.rename(r, rename, q.reply()),
        Operation::Link { node, name } => fs.link(r, node, name, q.reply()),
        Operation::Open(open) => fs.open(r, open, q.reply()),
        Operation::Create(create) => fs.create(r, create, q.reply()),
        Operation::Tmpfile(create) => fs.tmpfile(r, create, q.reply()),
        Operation::Read(read) => fs.read(r, read, q.reply_of(read.size)),
        Operation::Flush { fh, lock_owner } => fs.flush(r, fh, lock_owner, q.reply()),
        Operation::Release(release) => fs.release(r, release, q.reply()),
        Operation::Fsync { fh, data_only } => fs.fsync(r, fh, data_only, q.reply()),
        Operation::Opendir(open) => fs.opendir(r, open, q.reply()),
        Operation::Readdir(read) => fs.readdir(r, read, q.reply_of(read.size)),
        Operation::Readdirplus(read) => fs.readdirplus(r, read, q.reply_of(read.size)),
        Operation::Releasedir(release) => fs.releasedir(r, release, q.reply()),
        Operation::Fsyncdir { fh, data_only } => fs.fsyncdir(r, fh, data_only, q.reply()),
        Operation::Statfs => fs.statfs(r, q.reply()),
        Operation::Syncfs => fs.syncfs(r, q.reply()),
        Operation::Setxattr(xattr) => fs.setxattr(r, xattr, q.reply()),
        Operation::Getxattr { name, size } => fs.getxattr(r, name, q.reply_of(size)),
        Operation::Listxattr { size } => fs.listxattr(r, q.reply_of(size)),
        Operation::Removexattr { name } => fs.removexattr(r, name, q.reply()),
        Operation::Getlk(lock) => fs.getlk(r, lock, q.reply()),
        Operation::Setlk(lock) => fs.setlk(r, lock, q.reply()),
        Operation::Setlkw(lock) => fs.setlkw(r, lock, q.reply()),
        Operation::Fallocate(allocate) => fs.fallocate(r, allocate, q.reply()),
        Operation::Lseek { fh, offset, whence } => fs.lseek(r, fh, offset, whence, q.reply()),
        Operation::CopyFileRange(copy) => fs.copy_file_range(r, copy, q.reply()),
        Operation::Ioctl(ioctl) => fs.ioctl(r, ioctl, q.reply_of(ioctl.output_size)),
        Operation::Poll(poll) => fs.poll(r, poll, q.reply()),
        Operation::Bmap { block, block_size } => fs.bmap(r, block, block_size, q.reply()),
    }
}
