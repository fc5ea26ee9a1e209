//! A file system in memory whose behaviour tests control.

mod content;
mod file_system;
mod locks;
mod names;
mod nodes;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

pub use file_system::MemoryFileSystem;
use jfs::fuse::{Attributes, Entry};
use jfs::meta::Ino;
use nodes::Nodes;
use tokio::sync::{Notify, watch};

/// How reads of a file are handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behaviour {
    /// At once, on the receiving thread, as one slice.
    Plain,
    /// At once, as many slices of this size.
    Gather(usize),
    /// By a task.
    Task,
    /// When the gate opens; an interrupt drops the task.
    HangAbortable,
    /// When the gate opens; an interrupt replies EINTR and the task continues.
    HangDetachable,
    /// When the gate opens, whatever happens.
    HangStubborn,
    /// Never: the reply is dropped.
    Forget,
    /// Not at all: the handler panics.
    Panic,
}

pub struct MemoryFs {
    nodes: Mutex<Nodes>,
    lifetime: Mutex<Duration>,
    gate: watch::Sender<bool>,
    unlocked: Notify,
    pub seen: Seen,
}

/// The requests received.
#[derive(Default)]
pub struct Seen {
    pub reads: AtomicUsize,
    pub writes: AtomicUsize,
    pub largest_read: AtomicU32,
    pub largest_write: AtomicU32,
    pub resent: AtomicUsize,
    pub plus: AtomicUsize,
    pub forgotten: AtomicU64,
    pub released: AtomicUsize,
    /// Tasks that started, were dropped unfinished, and continued without their caller.
    pub begun: AtomicUsize,
    pub aborted: AtomicUsize,
    pub orphans: AtomicUsize,
    pub waiting: AtomicUsize,
    pub destroyed: AtomicBool,
}

impl MemoryFs {
    pub fn new() -> Arc<Self> {
        Self::sharing(Nodes::new())
    }

    /// Returns another one with the same nodes: what a new process would find in the store.
    pub fn successor(&self) -> Arc<Self> {
        Self::sharing(self.nodes().clone())
    }

    fn sharing(nodes: Nodes) -> Arc<Self> {
        Arc::new(Self {
            nodes: Mutex::new(nodes),
            lifetime: Mutex::default(),
            gate: watch::channel(false).0,
            unlocked: Notify::new(),
            seen: Seen::default(),
        })
    }

    pub fn add_file(&self, name: &str, content: &[u8]) -> u64 {
        self.nodes().add_file(1, name.as_bytes(), content)
    }

    /// Changes content without the kernel.
    pub fn replace(&self, ino: u64, content: &[u8]) {
        self.nodes().file_mut(ino).unwrap().clone_from(&content.to_vec());
    }

    /// Removes a name without the kernel.
    pub fn remove(&self, name: &str) {
        self.nodes().remove(1, name.as_bytes());
    }

    pub fn content(&self, name: &str) -> Vec<u8> {
        let mut nodes = self.nodes();
        let ino = nodes.child(1, name.as_bytes()).unwrap();
        nodes.file_mut(ino).unwrap().clone()
    }

    pub fn behave(&self, ino: u64, behaviour: Behaviour) {
        self.nodes().get_mut(ino).unwrap().behaviour = behaviour;
    }

    pub fn pass_through(&self, ino: u64, backing: u32) {
        self.nodes().get_mut(ino).unwrap().backing = Some(backing);
    }

    /// Sets how long the kernel may cache names and attributes.
    pub fn keep(&self, lifetime: Duration) {
        *self.lifetime.lock().unwrap() = lifetime;
    }

    /// Lets everything that hangs continue.
    pub fn open_gate(&self) {
        self.gate.send_replace(true);
    }

    fn nodes(&self) -> MutexGuard<'_, Nodes> {
        self.nodes.lock().unwrap()
    }

    fn entry(&self, nodes: &Nodes, ino: u64) -> Entry {
        let lifetime = *self.lifetime.lock().unwrap();
        Entry {
            ino: Ino(ino),
            generation: 1,
            stat: nodes.stat(ino),
            entry_lifetime: lifetime,
            attr_lifetime: lifetime,
        }
    }

    fn attributes(&self, nodes: &Nodes, ino: u64) -> Attributes {
        Attributes { stat: nodes.stat(ino), lifetime: *self.lifetime.lock().unwrap() }
    }
}

fn count(counter: &AtomicUsize) {
    counter.fetch_add(1, Ordering::SeqCst);
}
