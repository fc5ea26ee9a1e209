//! The file system of a mount, independent of the kernel: names, open files, virtual files, and the
//! data on its way between programs and the store.
//!
//! Uses inodes and chunks from `meta`, slices and blocks from `chunk`. Must not know FUSE.
//!
//! [`Vfs`] is the entry point. Below it, [`Content`] has an `OpenFile` for every inode that is open
//! or dirty. Written data goes into drafts, which are slices under construction; `file/commit.rs`
//! uploads and commits them. [`Reader`] reads committed data, after committing the drafts that
//! overlap the range.

mod attributes;
mod dir;
mod entries;
mod file;
mod handles;
mod id_mapping;
mod kernel_cache;
mod kernel_view;
mod locks;
mod metrics;
mod options;
mod virtual_files;
mod xattrs;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::chunk::Budget;
use crate::error::Result;
use crate::ledger::Ledger;
use crate::meta::record::Attr;
use crate::meta::{Caller, Ino, Meta};
use crate::rate_limit::RateLimit;
use crate::sync::Mutex;
use handles::{Handle, Handles};
use id_mapping::IdMapping;
use kernel_view::KernelView;
use locks::PendingUnlocks;

pub use attributes::NodeChange;
pub use dir::{ListedEntry, ListedNode};
pub use file::{Content, ContentOptions, Reader, Seek};
pub use handles::{Closing, Fh, OpenedNode};
pub use kernel_cache::{Invalidator, KernelCache};
pub use locks::RangeLock;
pub use metrics::OpMetrics;
pub use options::{Bandwidth, Squash, VfsOptions};
pub use virtual_files::{
    AccessLog, VirtualFile, VirtualFiles, VirtualFilesParts, Visibility, control_protocol,
};

/// An inode and its attributes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub ino: Ino,
    pub attr: Attr,
}

pub struct Vfs {
    root: Ino,
    meta: Arc<Meta>,
    content: Arc<Content>,
    options: VfsOptions,
    virtual_files: Arc<VirtualFiles>,
    invalidator: Arc<Invalidator>,
    handles: Handles,
    /// Serialises the rebuilding of handles, which is rare.
    rebuilding: tokio::sync::Mutex<()>,
    /// What the next process must know, if there can be one.
    ledger: Option<Arc<Ledger>>,
    /// For the state of open directories.
    memory: Arc<Budget>,
    kernel_view: KernelView,
    /// Owners of fcntl(2) locks, by file. Closing any descriptor of the file releases them.
    lockers: Mutex<HashSet<(Ino, u64)>>,
    pending_unlocks: Arc<PendingUnlocks>,
    /// Directories that were removed through this mount and that the kernel still refers to.
    removed_dirs: Mutex<HashMap<Ino, Attr>>,
    /// Bandwidth limits for reading and writing.
    bandwidth: (RateLimit, RateLimit),
    id_mapping: IdMapping,
    log: Arc<AccessLog>,
    metrics: OpMetrics,
}

/// The components of a [`Vfs`].
pub struct VfsParts {
    /// The directory that is mounted.
    pub root: Ino,
    pub meta: Arc<Meta>,
    pub content: Arc<Content>,
    pub virtual_files: Arc<VirtualFiles>,
    pub invalidator: Arc<Invalidator>,
    pub log: Arc<AccessLog>,
    pub metrics: OpMetrics,
    pub options: VfsOptions,
    /// For handles and their state.
    pub memory: Arc<Budget>,
    /// What the next process must know, if there can be one.
    pub ledger: Option<Arc<Ledger>>,
}

impl Vfs {
    pub fn new(parts: VfsParts) -> Arc<Self> {
        let VfsParts { root, meta, content, virtual_files, invalidator, log, .. } = parts;
        let VfsParts { metrics, options, memory, ledger, .. } = parts;
        Arc::new(Self {
            root,
            id_mapping: IdMapping::new(&options),
            handles: Handles::new(Arc::clone(&memory), ledger.clone()),
            rebuilding: tokio::sync::Mutex::default(),
            ledger,
            memory,
            kernel_view: KernelView::default(),
            lockers: Mutex::default(),
            pending_unlocks: Arc::default(),
            removed_dirs: Mutex::default(),
            bandwidth: Default::default(),
            meta,
            content,
            virtual_files,
            invalidator,
            log,
            metrics,
            options,
        })
    }

    pub fn options(&self) -> &VfsOptions {
        &self.options
    }

    /// Sets new bandwidth limits.
    pub fn limit(&self, bandwidth: Bandwidth) {
        self.bandwidth.0.set(bandwidth.read);
        self.bandwidth.1.set(bandwidth.write);
    }

    /// Where to report what the kernel must drop from its caches.
    pub fn invalidator(&self) -> &Arc<Invalidator> {
        &self.invalidator
    }

    pub fn log(&self) -> &Arc<AccessLog> {
        &self.log
    }

    pub fn metrics(&self) -> &OpMetrics {
        &self.metrics
    }

    /// Returns the caller of a request as the volume sees it, after squashing.
    pub fn caller(&self, uid: u32, gid: u32, pid: u32) -> Caller {
        self.id_mapping.caller(uid, gid, pid)
    }

    /// Whether the volume has POSIX ACLs.
    pub fn has_acls(&self) -> bool {
        self.meta.context().setting().enable_acl
    }

    /// Flushes all written data and closes all handles. Must be the last call.
    pub async fn close(&self) -> Result<()> {
        self.virtual_files.close().await;
        let flushed = self.content.close().await;
        for handle in self.handles.clear() {
            if let Handle::File(file) = &*handle {
                self.meta.close_file(file.reader.ino()).await?;
            }
        }
        flushed
    }

    /// The mounted directory.
    pub fn root(&self) -> Ino {
        self.root
    }

    pub fn is_virtual(&self, ino: Ino) -> bool {
        self.virtual_files.attr(ino).is_some()
    }

    /// Returns the umask that applies to a caller whose own umask is `own`.
    fn umask(&self, own: u16) -> u16 {
        self.options.umask.unwrap_or(own)
    }
}
