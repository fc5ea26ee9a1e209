//! One call of the VFS on behalf of a request: its caller, its method and its start, for metrics
//! and the access log.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::convert::stat;
use super::convert::to_kernel;
use super::log_format;
use crate::error::{Error, Result};
use crate::fuse::protocol::decode::Request;
use crate::fuse::protocol::encode::{Attributes, Entry, ReplyBody};
use crate::fuse::session::Reply;
use crate::meta::record::Attr;
use crate::meta::{Caller, Ino};
use crate::vfs::{Node, Vfs};

/// How long the kernel may cache virtual files.
const VIRTUAL: Duration = Duration::from_hours(1);
/// Inode numbers are never reused, so one generation is enough.
const GENERATION: u64 = 1;

pub struct Call {
    pub vfs: Arc<Vfs>,
    pub caller: Caller,
    method: &'static str,
    begun: Instant,
    /// The arguments for the access log; empty if nobody reads it.
    args: String,
}

impl Call {
    pub fn new(
        vfs: &Arc<Vfs>,
        method: &'static str,
        request: &Request,
        args: impl FnOnce() -> String,
    ) -> Self {
        let caller = vfs.caller(request.uid, request.gid, request.pid);
        let args = if vfs.log().is_read() { args() } else { String::new() };
        Self { vfs: Arc::clone(vfs), caller, method, begun: Instant::now(), args }
    }

    /// Records the request, because it changes something that it must not change twice.
    pub fn recorded<T: ReplyBody>(mut self, reply: &mut Reply<T>) -> Self {
        self.caller.request = reply.record();
        self
    }

    /// Counts and logs the outcome, and returns it.
    pub fn end<T>(&self, result: Result<T>, shown: impl FnOnce(&T) -> String) -> Result<T> {
        let took = self.begun.elapsed();
        self.vfs.metrics().done(self.method, took);
        if let Err(error) = &result {
            self.vfs.metrics().io_error(error.errno());
        }
        self.vfs.log().line(&self.caller, took, || {
            let (value, status) = match &result {
                Ok(value) => (shown(value), "OK".to_owned()),
                Err(error) => (String::new(), error.errno().desc().to_lowercase()),
            };
            let colon = if value.is_empty() { "" } else { ": " };
            format!("{} ({}){colon}{value} - {status}", self.method, self.args)
        });
        result
    }

    /// Like [`Call::end`], without a value in the log.
    pub fn done<T>(&self, result: Result<T>) -> Result<T> {
        self.end(result, |_| String::new())
    }

    /// Ends a call that returns the node of a name.
    pub fn entry(&self, result: Result<Node>) -> Result<Entry> {
        let node = self.end(result, log_format::node)?;
        Ok(entry(&self.vfs, &node))
    }

    /// Like [`Call::entry`], but lets the kernel cache that a name does not exist.
    pub fn found(&self, result: Result<Node>) -> Result<Entry> {
        let lifetime = self.vfs.options().negative_lifetime;
        match self.entry(result) {
            Err(Error::NotFound) if !lifetime.is_zero() => Ok(Entry::absent(lifetime)),
            found => found,
        }
    }

    /// Ends a call that returns the attributes of a node.
    pub fn attributes(&self, ino: Ino, result: Result<Attr>) -> Result<Attributes> {
        let attr = self.end(result, |attr| format!("({})", log_format::attr(attr)))?;
        let node = Node { ino, attr };
        self.vfs.record_reply(&node);
        let number = to_kernel(self.vfs.root(), ino);
        Ok(Attributes { stat: stat(number, &node), lifetime: attr_lifetime(&self.vfs, ino) })
    }
}

/// Returns the entry for the kernel.
pub fn entry(vfs: &Vfs, node: &Node) -> Entry {
    vfs.record_reply(node);
    let options = vfs.options();
    let entry_lifetime = match () {
        () if vfs.is_virtual(node.ino) => VIRTUAL,
        () if node.attr.is_dir() => options.dir_entry_lifetime,
        () => options.entry_lifetime,
    };
    let number = to_kernel(vfs.root(), node.ino);
    Entry {
        ino: number,
        generation: GENERATION,
        stat: stat(number, node),
        entry_lifetime,
        attr_lifetime: attr_lifetime(vfs, node.ino),
    }
}

fn attr_lifetime(vfs: &Vfs, ino: Ino) -> Duration {
    if vfs.is_virtual(ino) { VIRTUAL } else { vfs.options().attr_lifetime }
}
