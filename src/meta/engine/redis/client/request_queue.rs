//! The requests that wait for replies on one connection, in the order in which they were sent.

use std::collections::VecDeque;
use std::task::Waker;

use redis::Value;
use tokio::time::Instant;

use super::resp::MAX_REPLY_BYTES;

/// Why a request has no reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NoReply {
    /// It was never sent: the connection was already down.
    Unsent(String),
    /// It was sent, or may have been.
    Lost(String),
}

impl NoReply {
    pub fn cause(self) -> String {
        match self {
            Self::Unsent(cause) | Self::Lost(cause) => cause,
        }
    }
}

/// The replies to all commands of a request.
pub(super) type Response = Result<Vec<Value>, NoReply>;

/// The reply to one command.
pub(super) struct Reply {
    pub value: Value,
    /// Its length in the protocol.
    pub bytes: usize,
}

/// Bytes of replies that no task has taken yet. Waiting tasks take theirs within moments, so more
/// than this means that the server sends more than anyone can take.
const MAX_UNTAKEN_BYTES: usize = 4 * MAX_REPLY_BYTES;

/// Identifies a request until its response is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RequestId(usize);

/// Requests from being queued until their response is taken. Byte positions are counted from the
/// start of the connection.
#[derive(Default)]
pub(super) struct RequestQueue {
    slots: Vec<Slot>,
    free: Vec<usize>,
    /// Slots without a response, oldest first.
    order: VecDeque<usize>,
    /// How many of those a task waits for.
    waiting: usize,
    /// Bytes of all requests.
    queued: u64,
    /// Bytes that the socket was given.
    handed: u64,
    /// Bytes that may have reached the server.
    sent: u64,
    /// Bytes of the replies in the slots.
    untaken: usize,
}

struct Slot {
    state: SlotState,
    values: Vec<Value>,
    /// Length of the values in the protocol.
    bytes: usize,
    /// How many replies complete the request.
    expected: usize,
    /// Position of the request's first byte.
    start: u64,
    since: Instant,
}

enum SlotState {
    Free,
    Waiting(Waker),
    /// The replies are still to come, and no task wants them.
    GivenUp,
    Complete(Response),
}

impl RequestQueue {
    /// Adds a request of `expected` commands that are `bytes` long together.
    pub fn push(&mut self, expected: usize, bytes: usize, waker: Waker) -> RequestId {
        let slot = Slot {
            state: SlotState::Waiting(waker),
            values: Vec::with_capacity(expected),
            bytes: 0,
            expected,
            start: self.queued,
            since: Instant::now(),
        };
        self.queued += bytes as u64;
        self.waiting += 1;
        let index = if let Some(index) = self.free.pop() {
            self.slots[index] = slot;
            index
        } else {
            self.slots.push(slot);
            self.slots.len() - 1
        };
        self.order.push_back(index);
        RequestId(index)
    }

    /// Replaces the waker of a request that waits.
    pub fn set_waker(&mut self, RequestId(index): RequestId, waker: &Waker) {
        if let SlotState::Waiting(known) = &mut self.slots[index].state {
            known.clone_from(waker);
        }
    }

    /// Returns the response if it is complete. The id is invalid from then on.
    pub fn take(&mut self, RequestId(index): RequestId) -> Option<Response> {
        let state = &mut self.slots[index].state;
        if !matches!(state, SlotState::Complete(_)) {
            return None;
        }
        let SlotState::Complete(response) = std::mem::replace(state, SlotState::Free) else {
            return None;
        };
        self.free_slot(index);
        Some(response)
    }

    /// Marks a request that no task waits for any more. Its replies will be dropped.
    pub fn give_up(&mut self, id: RequestId) {
        if self.take(id).is_none() {
            self.slots[id.0].state = SlotState::GivenUp;
            self.waiting -= 1;
        }
    }

    pub fn has_one_waiter(&self) -> bool {
        self.waiting == 1
    }

    pub fn has_no_waiters(&self) -> bool {
        self.waiting == 0
    }

    /// Returns whether any byte of any request is unsent.
    pub fn is_unsent(&self) -> bool {
        self.sent < self.queued
    }

    /// Returns the waker of the task that has waited longest.
    pub fn first_waker(&self) -> Option<Waker> {
        self.order.iter().find_map(|&index| match &self.slots[index].state {
            SlotState::Waiting(waker) => Some(waker.clone()),
            _ => None,
        })
    }

    /// Returns since when the oldest request has been without a response.
    pub fn oldest(&self) -> Option<Instant> {
        self.order.front().map(|&index| self.slots[index].since)
    }

    /// Records that the socket has the bytes of all requests.
    pub fn mark_handed_to_socket(&mut self) {
        self.handed = self.queued;
    }

    /// Records how many bytes may have reached the server.
    pub fn mark_sent(&mut self, sent: u64) {
        self.sent = sent;
    }

    /// Gives replies to the oldest requests, in order, and returns how many requests are complete
    /// now. Collects the wakers of their tasks, except that of `me`, which is running. An error
    /// means that replies and requests no longer match.
    pub fn complete(
        &mut self,
        replies: &mut Vec<Reply>,
        me: RequestId,
        wakers: &mut Vec<Waker>,
    ) -> (usize, Result<(), String>) {
        let mut completed = 0;
        for Reply { value, bytes } in replies.drain(..) {
            let Some(&index) = self.order.front() else {
                return (completed, Err("a reply without a request".to_owned()));
            };
            self.untaken += bytes;
            if self.untaken > MAX_UNTAKEN_BYTES {
                let cause = format!("more than {MAX_UNTAKEN_BYTES} bytes of untaken replies");
                return (completed, Err(cause));
            }
            let slot = &mut self.slots[index];
            slot.bytes += bytes;
            let early = slot.start >= self.sent;
            match &value {
                // A server that refuses a client sends an error before it closes the connection.
                Value::ServerError(_) if early => slot.values = vec![value; slot.expected],
                _ if early => return (completed, Err("a reply before its request".to_owned())),
                _ => slot.values.push(value),
            }
            if slot.values.len() < slot.expected {
                continue;
            }
            let response = Ok(std::mem::take(&mut slot.values));
            self.order.pop_front();
            completed += 1;
            self.finish(index, response, Some(me), wakers);
            if early {
                return (completed, Err("the server refused the connection".to_owned()));
            }
        }
        (completed, Ok(()))
    }

    /// Fails all requests without a response. If a task is using the socket (`in_use`), all bytes
    /// that the socket was given may have been sent.
    pub fn fail_all(&mut self, cause: &str, in_use: bool, wakers: &mut Vec<Waker>) {
        let sent = if in_use { self.handed } else { self.sent };
        while let Some(index) = self.order.pop_front() {
            let no_reply = if self.slots[index].start < sent {
                NoReply::Lost(cause.to_owned())
            } else {
                NoReply::Unsent(cause.to_owned())
            };
            self.finish(index, Err(no_reply), None, wakers);
        }
    }

    fn finish(
        &mut self,
        index: usize,
        response: Response,
        me: Option<RequestId>,
        wakers: &mut Vec<Waker>,
    ) {
        let state = &mut self.slots[index].state;
        if let SlotState::Waiting(waker) = std::mem::replace(state, SlotState::Complete(response)) {
            self.waiting -= 1;
            if me != Some(RequestId(index)) {
                wakers.push(waker);
            }
        } else {
            *state = SlotState::Free;
            self.free_slot(index);
        }
    }

    fn free_slot(&mut self, index: usize) {
        self.untaken -= std::mem::take(&mut self.slots[index].bytes);
        self.free.push(index);
    }
}
