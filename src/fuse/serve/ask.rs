//! One question on its way through the file system: who asks, what, since when.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::numbers::to_kernel;
use super::show;
use super::stat::stat;
use crate::error::{Error, Result};
use crate::fuse::answer::{Attributes, Entry};
use crate::fuse::decode::Request;
use crate::meta::record::Attr;
use crate::meta::{Caller, Ino};
use crate::vfs::{Node, Vfs};

/// How long the kernel may keep what it knows of virtual files.
const VIRTUAL: Duration = Duration::from_hours(1);
/// Inodes are never used again, so one generation is enough.
const GENERATION: u64 = 1;

pub struct Ask {
    pub vfs: Arc<Vfs>,
    pub caller: Caller,
    method: &'static str,
    begun: Instant,
    /// As the access log shows it; only if somebody reads it.
    args: String,
}

impl Ask {
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

    /// Takes the outcome down, and passes it on.
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

    /// An outcome with nothing to show.
    pub fn done<T>(&self, result: Result<T>) -> Result<T> {
        self.end(result, |_| String::new())
    }

    /// A name that leads to a node.
    pub fn entry(&self, result: Result<Node>) -> Result<Entry> {
        let node = self.end(result, show::node)?;
        Ok(entry(&self.vfs, &node))
    }

    /// A name that may lead nowhere, which the kernel may remember for a while.
    pub fn found(&self, result: Result<Node>) -> Result<Entry> {
        let lifetime = self.vfs.options().negative_lifetime;
        match self.entry(result) {
            Err(Error::NotFound) if !lifetime.is_zero() => Ok(Entry::absent(lifetime)),
            found => found,
        }
    }

    /// The attributes of a node.
    pub fn attributes(&self, ino: Ino, result: Result<Attr>) -> Result<Attributes> {
        let attr = self.end(result, |attr| format!("({})", show::attr(attr)))?;
        let node = Node { ino, attr };
        self.vfs.tell(&node);
        let number = to_kernel(self.vfs.root(), ino);
        Ok(Attributes { stat: stat(number, &node), lifetime: attr_lifetime(&self.vfs, ino) })
    }
}

/// What the kernel is told of a name.
pub fn entry(vfs: &Vfs, node: &Node) -> Entry {
    vfs.tell(node);
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
