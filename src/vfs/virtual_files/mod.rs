//! The virtual files of a mount: their names and their content.
//!
//! `.config` and `.stats` are texts, `.accesslog` shows every operation, and `.control` accepts
//! requests that are written to it and returns the replies. The formats are those of JuiceFS, whose
//! tools read and write them.

mod access_log;
mod config;
mod control;
pub mod control_protocol;
mod nodes;
mod stats;
mod virtual_file;

use std::sync::Arc;
use std::time::Duration;

use nix::fcntl::OFlag;
use prometheus::Registry;
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use tracing::warn;

pub use access_log::AccessLog;
pub use virtual_file::VirtualFile;

use crate::chunk::{Budget, Store};
use crate::error::{Error, Result};
use crate::meta::op::content::open::writes;
use crate::meta::record::Attr;
use crate::meta::{Caller, Ino, Meta, Name};
use crate::vfs::Content;
use crate::vfs::kernel_cache::Invalidator;
use control::ControlHandle;
use nodes::{VirtualNode, VirtualNodes};

/// How long unmounting waits for requests to stop.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// The most open handles of `.control`. Each tool has one.
const MAX_HANDLES: usize = 64;
/// Requests that are processed at the same time; others wait.
const MAX_RUNNING: usize = 16;

/// The components of the virtual files.
pub struct VirtualFilesParts {
    /// The mounted directory.
    pub root: Ino,
    pub meta: Arc<Meta>,
    pub content: Arc<Content>,
    pub store: Arc<Store>,
    /// Shown by `.stats`.
    pub registries: Vec<Registry>,
    /// Shown by `.config`, with `Format` replaced by the current setting.
    pub config: Value,
    /// Shown by `.accesslog`.
    pub log: Arc<AccessLog>,
    /// Every name begins with `.jfs`.
    pub prefix: bool,
    pub invalidator: Arc<Invalidator>,
    /// For requests and replies.
    pub memory: Arc<Budget>,
    /// Which of them exist.
    pub visibility: Visibility,
}

/// Which virtual files a mount has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Visibility {
    /// Those of JuiceFS, with everything its tools can show.
    #[default]
    All,
    /// The same files, but with information about this mount only.
    Own,
    /// None.
    Nothing,
}

/// The virtual files of one mount.
pub struct VirtualFiles {
    nodes: VirtualNodes,
    control: Arc<ControlContext>,
    registries: Vec<Registry>,
    config: Value,
    log: Arc<AccessLog>,
    visibility: Visibility,
    /// Stops background work when the mount ends.
    _stop: DropGuard,
}

/// The context in which requests of `.control` run.
struct ControlContext {
    /// The mounted directory.
    root: Ino,
    meta: Arc<Meta>,
    content: Arc<Content>,
    store: Arc<Store>,
    invalidator: Arc<Invalidator>,
    runtime: Handle,
    memory: Arc<Budget>,
    /// Limits the open handles.
    handles: Arc<Semaphore>,
    /// Limits the requests processed at the same time.
    running: Arc<Semaphore>,
    /// Requests under way.
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl VirtualFiles {
    /// Must be called within the runtime that is to run the requests.
    pub fn new(parts: VirtualFilesParts) -> Arc<Self> {
        let VirtualFilesParts {
            root, meta, content, store, registries, config, log, prefix, ..
        } = parts;
        let VirtualFilesParts { invalidator, memory, visibility, .. } = parts;
        let stop = CancellationToken::new();
        let runtime = Handle::current();
        let tasks = TaskTracker::new();
        let handles = Arc::new(Semaphore::new(MAX_HANDLES));
        let running = Arc::new(Semaphore::new(MAX_RUNNING));
        let control = ControlContext {
            root,
            meta,
            content,
            store,
            invalidator,
            runtime,
            memory,
            handles,
            running,
            tasks,
            stop: stop.clone(),
        };
        let virtual_files = Self {
            nodes: VirtualNodes::new(prefix),
            control: Arc::new(control),
            registries,
            config,
            log,
            visibility,
            _stop: stop.drop_guard(),
        };
        Arc::new(virtual_files)
    }

    /// Returns the virtual file with this name. `.control` exists in every directory.
    pub fn find(&self, dir: Ino, name: &[u8]) -> Option<(Ino, Attr)> {
        let node = self.named(name)?;
        (dir == self.control.root || node == VirtualNode::Control)
            .then(|| (node.ino(), self.attr_of(node)))
    }

    /// Returns the attr of a virtual file, or `None` for any other inode.
    pub fn attr(&self, ino: Ino) -> Option<Attr> {
        self.numbered(ino).map(|node| self.attr_of(node))
    }

    /// Whether a name cannot be created, removed or renamed. Includes the trash where it is
    /// visible.
    pub fn is_reserved(&self, dir: Ino, name: &[u8]) -> bool {
        let is_trash = || self.trash_name().is_some_and(|trash| trash.as_bytes() == name);
        dir == self.control.root && (self.named(name).is_some() || is_trash())
    }

    /// Returns the virtual files that a listing of the root shows, without the trash. `.control` is
    /// never listed.
    pub fn listed(&self) -> Vec<(Name, Ino, Attr)> {
        if self.visibility == Visibility::Nothing {
            return Vec::new();
        }
        let listed = [VirtualNode::AccessLog, VirtualNode::Stats, VirtualNode::Config];
        listed.map(|node| (self.nodes.name(node), node.ino(), self.attr_of(node))).into()
    }

    /// Returns the name of the trash in the root, or `None` if another directory than the root of
    /// the volume is mounted.
    pub fn trash_name(&self) -> Option<Name> {
        (self.control.root == Ino::ROOT).then(|| self.nodes.trash_name())
    }

    /// Opens a virtual file. Requests through it run with the caller's permissions.
    pub fn open(self: &Arc<Self>, caller: &Caller, ino: Ino, flags: OFlag) -> Result<VirtualFile> {
        let node = self.numbered(ino).ok_or(Error::NotFound)?;
        if node != VirtualNode::Control && writes(flags) {
            return Err(Error::AccessDenied);
        }
        Ok(match node {
            VirtualNode::AccessLog => VirtualFile::log(self.log.open(&self.control.memory)?),
            VirtualNode::Control => {
                VirtualFile::control(ControlHandle::new(Arc::clone(&self.control), caller.clone())?)
            }
            VirtualNode::Stats => {
                let figures: Vec<_> = self.registries.iter().flat_map(Registry::gather).collect();
                VirtualFile::text(stats::render(&figures), &self.control.memory)?
            }
            VirtualNode::Config => VirtualFile::text(self.config_text(), &self.control.memory)?,
        })
    }

    /// Opens a virtual file again that another process had opened. Not `.control`: the permissions
    /// of the caller are not known any more, and its requests are lost.
    pub fn reopen(self: &Arc<Self>, ino: Ino, flags: OFlag) -> Result<VirtualFile> {
        if VirtualNode::numbered(ino) == Some(VirtualNode::Control) {
            return Err(Error::BadHandle);
        }
        self.open(&Caller::root(), ino, flags)
    }

    /// Cancels all requests and waits for them to stop, so that changes under way are completed
    /// before the volume is closed.
    pub async fn close(&self) {
        self.control.stop.cancel();
        self.control.tasks.close();
        if timeout(CLOSE_TIMEOUT, self.control.tasks.wait()).await.is_err() {
            warn!("requests of .control are still running at the end of the mount");
        }
    }

    fn named(&self, name: &[u8]) -> Option<VirtualNode> {
        self.nodes.named(name).filter(|_| self.visibility != Visibility::Nothing)
    }

    fn numbered(&self, ino: Ino) -> Option<VirtualNode> {
        VirtualNode::numbered(ino).filter(|_| self.visibility != Visibility::Nothing)
    }

    fn attr_of(&self, node: VirtualNode) -> Attr {
        let length = if node == VirtualNode::Config { self.config_text().len() } else { 0 };
        self.nodes.attr(node, length as u64)
    }

    fn config_text(&self) -> Vec<u8> {
        config::render(&self.config, &self.control.meta.context().setting(), self.visibility)
    }
}
