//! The file system of a mount: names, open files and directories, and the virtual files, over
//! metadata and content.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::content::Content;
use super::handles::Handles;
use super::identity::Identity;
use super::internal::{AccessLog, Internal};
use super::metrics::OpMetrics;
use super::notices::Notices;
use super::options::{Bandwidth, VfsOptions};
use super::told::Told;
use super::unlocks::Unlocks;
use crate::chunk::Budget;
use crate::error::Result;
use crate::meta::record::Attr;
use crate::meta::{Caller, Ino, Meta};
use crate::rate_limit::RateLimit;
use crate::sync::Mutex;

/// A node, as somebody who asked for it sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub ino: Ino,
    pub attr: Attr,
}

pub struct Vfs {
    root: Ino,
    pub(super) meta: Arc<Meta>,
    pub(super) content: Arc<Content>,
    pub(super) options: VfsOptions,
    pub(super) internal: Arc<Internal>,
    pub(super) notices: Arc<Notices>,
    pub(super) handles: Handles,
    /// For what is kept of open directories.
    pub(super) memory: Arc<Budget>,
    pub(super) told: Told,
    /// Who holds ranges of which file locked: these go when the owner closes any handle of it.
    pub(super) lockers: Mutex<HashSet<(Ino, u64)>>,
    pub(super) unlocks: Arc<Unlocks>,
    /// Directories that were removed through this mount and that the kernel still refers to.
    pub(super) removed_dirs: Mutex<HashMap<Ino, Attr>>,
    /// Of reading and writing.
    pub(super) pace: (RateLimit, RateLimit),
    identity: Identity,
    log: Arc<AccessLog>,
    metrics: OpMetrics,
}

/// What a [`Vfs`] is made of.
pub struct VfsParts {
    /// The directory that is mounted.
    pub root: Ino,
    pub meta: Arc<Meta>,
    pub content: Arc<Content>,
    pub internal: Arc<Internal>,
    pub notices: Arc<Notices>,
    pub log: Arc<AccessLog>,
    pub metrics: OpMetrics,
    pub options: VfsOptions,
    /// For handles, and what is kept with them.
    pub memory: Arc<Budget>,
}

impl Vfs {
    pub fn new(parts: VfsParts) -> Arc<Self> {
        let VfsParts { root, meta, content, internal, notices, log, .. } = parts;
        let VfsParts { metrics, options, memory, .. } = parts;
        Arc::new(Self {
            root,
            identity: Identity::new(&options),
            handles: Handles::new(Arc::clone(&memory)),
            memory,
            told: Told::default(),
            lockers: Mutex::default(),
            unlocks: Arc::default(),
            removed_dirs: Mutex::default(),
            pace: Default::default(),
            meta,
            content,
            internal,
            notices,
            log,
            metrics,
            options,
        })
    }

    pub fn options(&self) -> &VfsOptions {
        &self.options
    }

    /// Another bandwidth from now on.
    pub fn limit(&self, bandwidth: Bandwidth) {
        self.pace.0.set(bandwidth.read);
        self.pace.1.set(bandwidth.write);
    }

    /// Where to say what the kernel must not keep.
    pub fn notices(&self) -> &Arc<Notices> {
        &self.notices
    }

    pub fn log(&self) -> &Arc<AccessLog> {
        &self.log
    }

    pub fn metrics(&self) -> &OpMetrics {
        &self.metrics
    }

    /// Who asks, as the volume sees them.
    pub fn caller(&self, uid: u32, gid: u32, pid: u32) -> Caller {
        self.identity.caller(uid, gid, pid)
    }

    /// Whether the volume has POSIX ACLs.
    pub fn has_acls(&self) -> bool {
        self.meta.context().setting().enable_acl
    }

    /// Flushes all that was written and gives back what is open. Nothing may be asked any more.
    pub async fn close(&self) -> Result<()> {
        self.internal.close().await;
        let flushed = self.content.close().await;
        for handle in self.handles.clear() {
            if let super::handles::Handle::File(file) = &*handle {
                self.meta.close_file(file.reader.ino()).await?;
            }
        }
        flushed
    }

    /// The directory that is mounted.
    pub fn root(&self) -> Ino {
        self.root
    }

    pub fn is_virtual(&self, ino: Ino) -> bool {
        self.internal.attr(ino).is_some()
    }

    /// The umask that counts for a caller with this one.
    pub(super) fn umask(&self, own: u16) -> u16 {
        self.options.umask.unwrap_or(own)
    }
}
