//! Notifications: messages to the kernel that something it caches is outdated.
//!
//! Sending one can block. Dropping a name takes the lock of its directory, which a process holds
//! while it waits for our reply to a lookup or a create there; dropping pages waits for the reads
//! and writes that use them. A thread that handles requests would wait for itself. So notifications
//! are queued and sent by a thread that does nothing else.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::thread;

use bytes::Bytes;
use nix::errno::Errno;
use tokio::sync::oneshot;
use tracing::{debug, warn};

use super::connection::Connection;
use crate::fuse::protocol::abi::{flag, notify};
use crate::fuse::protocol::message_head::MessageHead;
use crate::meta::Ino;
use crate::sync::{Condvar, Mutex, MutexGuard};

/// The most notifications in the queue.
const WAITING_MAX: usize = 16_384;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notification {
    /// The attributes of a node changed, and its content from `offset` on; up to the end if
    /// `length` is 0. A negative `offset` keeps the content.
    Inode { ino: Ino, offset: i64, length: i64 },
    /// A name was removed or refers to another node now.
    Entry { dir: Ino, name: Bytes },
    /// A name must be looked up again before its next use, but what is open below it stays.
    ExpireEntry { dir: Ino, name: Bytes },
    /// A name was removed: watchers of the directory are notified.
    Delete { dir: Ino, ino: Ino, name: Bytes },
    /// Data to put into the kernel's cache.
    Store { ino: Ino, offset: u64, data: Bytes },
}

/// Sends notifications from any thread, without waiting for the kernel.
#[derive(Clone)]
pub struct Notifier(Arc<Queue>);

struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Item>,
    closed: bool,
}

enum Item {
    Send(Notification),
    /// Reports that everything queued before was sent.
    Mark(oneshot::Sender<()>),
}

impl Notifier {
    pub(super) fn start(connection: Arc<Connection>) -> io::Result<Self> {
        let queue = Arc::new(Queue { state: Mutex::default(), changed: Condvar::new() });
        let sending = Arc::clone(&queue);
        let thread = thread::Builder::new().name("fuse-notify".into());
        thread.spawn(move || {
            while let Some(item) = sending.next() {
                match item {
                    Item::Send(notification) => send(&connection, &notification),
                    // The waiter may be gone.
                    Item::Mark(passed) => drop(passed.send(())),
                }
            }
        })?;
        Ok(Self(queue))
    }

    /// Queues a notification. False if the queue is full or the session is over: then the kernel
    /// keeps what it caches until it expires.
    #[must_use]
    pub fn send(&self, notification: Notification) -> bool {
        self.0.push(Item::Send(notification))
    }

    /// Waits until everything queued before has reached the kernel.
    pub async fn delivered(&self) {
        let (passed, passing) = oneshot::channel();
        if self.0.push(Item::Mark(passed)) {
            // An error means the same: the sending thread has ended.
            let _ = passing.await;
        }
    }

    /// Closes the queue, and waits until everything in it has reached the kernel.
    pub(super) async fn close(&self) {
        self.delivered().await;
        self.shut();
    }

    /// Closes the queue.
    pub(super) fn shut(&self) {
        self.0.lock().closed = true;
        self.0.changed.notify_all();
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn push(&self, item: Item) -> bool {
        let mut state = self.lock();
        if state.closed || state.waiting.len() >= WAITING_MAX {
            return false;
        }
        state.waiting.push_back(item);
        self.changed.notify_one();
        true
    }

    /// Returns the next item to send; `None` when closed and empty.
    fn next(&self) -> Option<Item> {
        let waiting = |state: &mut State| state.waiting.is_empty() && !state.closed;
        let mut state = self.changed.wait_while(self.lock(), waiting);
        state.waiting.pop_front()
    }
}

fn send(connection: &Connection, notification: &Notification) {
    let mut head = MessageHead::new();
    // A name is sent with its NUL, which its length does not include.
    let (code, tail): (i32, [&[u8]; 2]) = match notification {
        Notification::Inode { ino, offset, length } => {
            head.u64(ino.0);
            head.u64(offset.cast_unsigned());
            head.u64(length.cast_unsigned());
            (notify::INVAL_INODE, [&[], &[]])
        }
        Notification::Entry { dir, name } => {
            entry(&mut head, *dir, name, 0);
            (notify::INVAL_ENTRY, [name, &[0]])
        }
        Notification::ExpireEntry { dir, name } => {
            entry(&mut head, *dir, name, flag::INVAL_ENTRY_EXPIRE_ONLY);
            (notify::INVAL_ENTRY, [name, &[0]])
        }
        Notification::Delete { dir, ino, name } => {
            head.u64(dir.0);
            head.u64(ino.0);
            head.u32(length(name));
            head.u32(0);
            (notify::DELETE, [name, &[0]])
        }
        Notification::Store { ino, offset, data } => {
            head.u64(ino.0);
            head.u64(*offset);
            head.u32(length(data));
            head.u32(0);
            (notify::STORE, [data, &[]])
        }
    };
    let message = head.seal(tail[0].len() + tail[1].len(), code, 0);
    match connection.device.send(&[
        IoSlice::new(message),
        IoSlice::new(tail[0]),
        IoSlice::new(tail[1]),
    ]) {
        Ok(()) => {}
        // The kernel caches nothing of it, or is gone.
        Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ENODEV | Errno::ENOTCONN) => {
            debug!(?notification, "nothing to invalidate");
        }
        // In use: a mount point, or a directory with something open below.
        Err(errno) => warn!(?notification, %errno, "the kernel did not drop its cache"),
    }
}

fn entry(head: &mut MessageHead, dir: Ino, name: &Bytes, flags: u32) {
    head.u64(dir.0);
    head.u32(length(name));
    head.u32(flags);
}

fn length(bytes: &Bytes) -> u32 {
    // The kernel rejects names that are too long.
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}
