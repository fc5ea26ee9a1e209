//! The virtual files of a mount: what they are called, and what is in them.
//!
//! `.config` and `.stats` are texts, `.accesslog` is what everyone does, `.control` is a
//! conversation: requests are written to it and their answers read from it. The formats are those
//! of JuiceFS, whose tools read and write them.

mod access_log;
mod config;
mod control;
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
pub use virtual_file::Virtual;

use super::Content;
use super::notices::Notices;
use crate::chunk::{Budget, Store};
use crate::error::{Error, Result};
use crate::meta::op::content::open::writes;
use crate::meta::record::Attr;
use crate::meta::{Caller, Ino, Meta, Name};
use control::Conversation;
use nodes::{Node, Nodes};

/// How long the end of a mount waits for a step of what was asked for.
const GRACE: Duration = Duration::from_secs(10);

/// Handles of `.control` at the same time. Each tool has one.
const CONVERSATIONS: usize = 64;
/// Requests that are worked on at the same time; others wait.
const TURNS: usize = 16;

/// What the virtual files are made of.
pub struct Parts {
    /// The directory that is mounted.
    pub root: Ino,
    pub meta: Arc<Meta>,
    pub content: Arc<Content>,
    pub store: Arc<Store>,
    /// What `.stats` shows.
    pub registries: Vec<Registry>,
    /// What `.config` shows; its `Format` is exchanged for the setting of the moment.
    pub config: Value,
    /// What `.accesslog` shows.
    pub log: Arc<AccessLog>,
    /// Every name begins with `.jfs`.
    pub prefix: bool,
    pub notices: Arc<Notices>,
    /// For what is said and asked.
    pub memory: Arc<Budget>,
    /// Which of them there are.
    pub shown: Shown,
}

/// Which virtual files a mount has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Shown {
    /// Those of JuiceFS, with all that its tools can know.
    #[default]
    All,
    /// The same, and in them nothing but what concerns this mount.
    Own,
    /// None.
    Nothing,
}

/// The virtual files of one mount.
pub struct Internal {
    nodes: Nodes,
    work: Arc<Work>,
    registries: Vec<Registry>,
    config: Value,
    log: Arc<AccessLog>,
    shown: Shown,
    /// Ends work that goes on in the background, with the mount.
    _stop: DropGuard,
}

/// What requests of `.control` work on.
struct Work {
    /// The directory that is mounted.
    root: Ino,
    meta: Arc<Meta>,
    content: Arc<Content>,
    store: Arc<Store>,
    notices: Arc<Notices>,
    runtime: Handle,
    memory: Arc<Budget>,
    /// How many more may ask.
    conversations: Arc<Semaphore>,
    /// How many more requests may be under way.
    turns: Arc<Semaphore>,
    /// What was asked for and goes on.
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Internal {
    /// Must be called within the runtime that is to do the work.
    pub fn new(parts: Parts) -> Arc<Self> {
        let Parts { root, meta, content, store, registries, config, log, prefix, .. } = parts;
        let Parts { notices, memory, shown, .. } = parts;
        let stop = CancellationToken::new();
        let runtime = Handle::current();
        let tasks = TaskTracker::new();
        let conversations = Arc::new(Semaphore::new(CONVERSATIONS));
        let turns = Arc::new(Semaphore::new(TURNS));
        let work = Work {
            root,
            meta,
            content,
            store,
            notices,
            runtime,
            memory,
            conversations,
            turns,
            tasks,
            stop: stop.clone(),
        };
        let internal = Self {
            nodes: Nodes::new(prefix),
            work: Arc::new(work),
            registries,
            config,
            log,
            shown,
            _stop: stop.drop_guard(),
        };
        Arc::new(internal)
    }

    /// The virtual file of that name. `.control` is in every directory.
    pub fn find(&self, dir: Ino, name: &[u8]) -> Option<(Ino, Attr)> {
        let node = self.named(name)?;
        (dir == self.work.root || node == Node::Control).then(|| (node.ino(), self.attr_of(node)))
    }

    /// None if it is not the number of a virtual file.
    pub fn attr(&self, ino: Ino) -> Option<Attr> {
        self.numbered(ino).map(|node| self.attr_of(node))
    }

    /// Whether the name can't be made, removed or renamed. The trash is among them, where it shows.
    pub fn is_reserved(&self, dir: Ino, name: &[u8]) -> bool {
        let is_trash = || self.trash_name().is_some_and(|trash| trash.as_bytes() == name);
        dir == self.work.root && (self.named(name).is_some() || is_trash())
    }

    /// What a listing of the root shows first, without the trash. `.control` is not among them.
    pub fn listed(&self) -> Vec<(Name, Ino, Attr)> {
        if self.shown == Shown::Nothing {
            return Vec::new();
        }
        let listed = [Node::AccessLog, Node::Stats, Node::Config];
        listed.map(|node| (self.nodes.name(node), node.ino(), self.attr_of(node))).into()
    }

    /// What the trash is called in the root; none if what is mounted is not the root of the volume.
    pub fn trash_name(&self) -> Option<Name> {
        (self.work.root == Ino::ROOT).then(|| self.nodes.trash_name())
    }

    /// Opens a virtual file. What it does for the caller, it does with the caller's rights.
    pub fn open(self: &Arc<Self>, caller: &Caller, ino: Ino, flags: OFlag) -> Result<Virtual> {
        let node = self.numbered(ino).ok_or(Error::NotFound)?;
        if node != Node::Control && writes(flags) {
            return Err(Error::AccessDenied);
        }
        Ok(match node {
            Node::AccessLog => Virtual::log(self.log.open(&self.work.memory)?),
            Node::Control => {
                Virtual::control(Conversation::new(Arc::clone(&self.work), caller.clone())?)
            }
            Node::Stats => {
                let figures: Vec<_> = self.registries.iter().flat_map(Registry::gather).collect();
                Virtual::text(stats::render(&figures), &self.work.memory)?
            }
            Node::Config => Virtual::text(self.config_text(), &self.work.memory)?,
        })
    }

    /// Opens again what another process had opened. Not `.control`: who may ask for what is not known
    /// any more, and what was asked for is lost.
    pub fn reopen(self: &Arc<Self>, ino: Ino, flags: OFlag) -> Result<Virtual> {
        if Node::numbered(ino) == Some(Node::Control) {
            return Err(Error::BadHandle);
        }
        self.open(&Caller::root(), ino, flags)
    }

    /// Gives up everything that was asked for, and waits for its end: what was begun is carried out
    /// before the volume is closed.
    pub async fn close(&self) {
        self.work.stop.cancel();
        self.work.tasks.close();
        if timeout(GRACE, self.work.tasks.wait()).await.is_err() {
            warn!("requests of .control are still under way at the end of the mount");
        }
    }

    fn named(&self, name: &[u8]) -> Option<Node> {
        self.nodes.named(name).filter(|_| self.shown != Shown::Nothing)
    }

    fn numbered(&self, ino: Ino) -> Option<Node> {
        Node::numbered(ino).filter(|_| self.shown != Shown::Nothing)
    }

    fn attr_of(&self, node: Node) -> Attr {
        let length = if node == Node::Config { self.config_text().len() } else { 0 };
        self.nodes.attr(node, length as u64)
    }

    fn config_text(&self) -> Vec<u8> {
        config::render(&self.config, &self.work.meta.context().setting(), self.shown)
    }
}
