//! What the kernel must be told unasked: that something it keeps is no longer true.
//!
//! Such a message can wait. Dropping a name takes the lock of its directory, which a process holds
//! while it waits for our answer to a lookup or a create there; dropping pages waits for the reads
//! and writes that they are in. Sent by a thread that answers requests, it would wait for itself.
//! So messages are queued and sent by a thread that does nothing else.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::thread;

use bytes::Bytes;
use nix::errno::Errno;
use tokio::sync::oneshot;
use tracing::{debug, warn};

use super::abi::{flag, notify};
use super::head::Head;
use super::link::Link;
use crate::meta::Ino;
use crate::sync::{Condvar, Mutex, MutexGuard};

/// Messages that may wait to be sent.
const WAITING_MAX: usize = 16_384;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notification {
    /// The attributes of a node changed, and its content from `offset` on; up to the end if
    /// `length` is 0. A negative `offset` leaves the content alone.
    Inode { ino: Ino, offset: i64, length: i64 },
    /// A name leads elsewhere or nowhere now.
    Entry { dir: Ino, name: Bytes },
    /// A name is to be looked up again before its next use, but what is open below it stays.
    ExpireEntry { dir: Ino, name: Bytes },
    /// A name was removed: those who watch the directory hear of it.
    Delete { dir: Ino, ino: Ino, name: Bytes },
    /// Content to keep.
    Store { ino: Ino, offset: u64, data: Bytes },
}

/// Sends notifications, from any thread, without ever waiting for the kernel.
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
    /// Everything before this was sent.
    Mark(oneshot::Sender<()>),
}

impl Notifier {
    pub(super) fn start(link: Arc<Link>) -> io::Result<Self> {
        let queue = Arc::new(Queue { state: Mutex::default(), changed: Condvar::new() });
        let sending = Arc::clone(&queue);
        let thread = thread::Builder::new().name("fuse-notify".into());
        thread.spawn(move || {
            while let Some(item) = sending.next() {
                match item {
                    Item::Send(notification) => send(&link, &notification),
                    // Whoever asked may have stopped waiting.
                    Item::Mark(passed) => drop(passed.send(())),
                }
            }
        })?;
        Ok(Self(queue))
    }

    /// Queues a notification. False if there is no room or the session is over: then what the
    /// kernel keeps ends with its lifetime, and not before.
    #[must_use]
    pub fn send(&self, notification: Notification) -> bool {
        self.0.push(Item::Send(notification))
    }

    /// Waits until everything that was queued before has reached the kernel.
    pub async fn delivered(&self) {
        let (passed, passing) = oneshot::channel();
        if self.0.push(Item::Mark(passed)) {
            // An error means the same: the sender has ended.
            let _ = passing.await;
        }
    }

    /// Takes no more, and waits until what is queued has reached the kernel.
    pub(super) async fn close(&self) {
        self.delivered().await;
        self.shut();
    }

    /// Takes no more.
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

    /// The next to be sent; `None` when closed and empty.
    fn next(&self) -> Option<Item> {
        let waiting = |state: &mut State| state.waiting.is_empty() && !state.closed;
        let mut state = self.changed.wait_while(self.lock(), waiting);
        state.waiting.pop_front()
    }
}

fn send(link: &Link, notification: &Notification) {
    let mut head = Head::new();
    // A name is sent with its NUL, which its length does not count.
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
    match link.device.send(&[IoSlice::new(message), IoSlice::new(tail[0]), IoSlice::new(tail[1])]) {
        Ok(()) => {}
        // The kernel keeps nothing of it, or is not there any more.
        Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ENODEV | Errno::ENOTCONN) => {
            debug!(?notification, "nothing to drop");
        }
        // In use: a mount point, or a directory with something open below.
        Err(errno) => warn!(?notification, %errno, "the kernel keeps what it was told to drop"),
    }
}

fn entry(head: &mut Head, dir: Ino, name: &Bytes, flags: u32) {
    head.u64(dir.0);
    head.u32(length(name));
    head.u32(flags);
}

fn length(bytes: &Bytes) -> u32 {
    // The kernel refuses what is too long.
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}
