//! One handle of `.control`: the requests written to it and the replies read from it.

use std::sync::Arc;

use bytes::Bytes;
use nix::errno::Errno;
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::handle_buffer::{HandleBuffer, Parsed};
use super::reply::ReplyWriter;
use crate::chunk::Reserved;
use crate::error::{Error, Result};
use crate::meta::Caller;
use crate::sync::Mutex;
use crate::vfs::control_protocol::{Request, errno_to_byte};
use crate::vfs::virtual_files::ControlContext;

pub struct ControlHandle {
    context: Arc<ControlContext>,
    caller: Caller,
    buffer: Arc<Mutex<HandleBuffer>>,
    /// Cancels the requests since the last flush.
    cancel: Mutex<CancellationToken>,
    _permit: OwnedSemaphorePermit,
}

impl ControlHandle {
    /// Fails with [`Error::TooManyOpen`] if this mount has too many handles open.
    pub fn new(context: Arc<ControlContext>, caller: Caller) -> Result<Self> {
        let permit = Arc::clone(&context.handles).try_acquire_owned();
        let permit = permit.map_err(|_| Error::TooManyOpen)?;
        // The kernel has not checked the nodes that a request names.
        let caller = Caller { check: true, ..caller };
        let cancel = Mutex::new(context.stop.child_token());
        let buffer = Arc::new(Mutex::new(HandleBuffer::new(Arc::clone(&context.memory))));
        Ok(Self { context, caller, buffer, cancel, _permit: permit })
    }

    pub fn write(&self, bytes: &[u8]) -> Result<()> {
        let mut buffer = self.buffer.lock();
        match buffer.push_request(bytes)? {
            Parsed::Incomplete => {}
            Parsed::Malformed => buffer.push_reply(&[errno_to_byte(Errno::EIO)]),
            Parsed::Complete(raw) => {
                let memory = buffer.split_memory(&raw);
                match Request::parse(raw.op, raw.body) {
                    Ok(request) => self.run(request, memory),
                    Err(error) => {
                        warn!(
                            op = raw.op,
                            "a request to .control has an unknown or malformed operation"
                        );
                        buffer.push_reply(&[errno_to_byte(error.errno())]);
                    }
                }
            }
        }
        Ok(())
    }

    pub fn read(&self, off: u64, len: usize) -> Result<Bytes> {
        self.buffer.lock().read(off, len)
    }

    /// Cancels the requests under way, but not later ones.
    pub fn cancel(&self) {
        let next = self.context.stop.child_token();
        std::mem::replace(&mut *self.cancel.lock(), next).cancel();
    }

    /// Runs a request in a task. `memory` is held until it ends, also after the handle was closed.
    fn run(&self, request: Request, memory: Option<Reserved>) {
        let reply = ReplyWriter::new(Arc::clone(&self.buffer), self.cancel.lock().clone());
        let (context, caller) = (Arc::clone(&self.context), self.caller.clone());
        let task = async move {
            let _memory = memory;
            // Excess requests wait.
            let permit = tokio::select! {
                permit = Arc::clone(&context.running).acquire_owned() => permit,
                () = reply.cancelled().cancelled() => return reply.end(Err(Error::Interrupted)),
            };
            let _permit = permit;
            let request = match context.check_reach(&caller, request).await {
                Ok(request) => request,
                Err(error) => return reply.end(Err(error)),
            };
            match request {
                Request::Remove(request) => context.remove(&caller, request, reply).await,
                Request::LegacyInfo(request) => context.legacy_info(&caller, request, reply).await,
                Request::Warmup(request) => context.warmup(caller, request, reply).await,
                Request::Info(request) => context.info(&caller, request, reply).await,
                Request::Clone(request) => context.clone_tree(&caller, request, reply).await,
                Request::Summary(request) => context.summary(&caller, request, reply).await,
                Request::Compact { ino, threads } => {
                    context.compact(&caller, ino, threads, reply).await;
                }
            }
        };
        self.context.tasks.spawn_on(task, &self.context.runtime);
    }
}

impl Drop for ControlHandle {
    fn drop(&mut self) {
        self.cancel.lock().cancel();
    }
}
