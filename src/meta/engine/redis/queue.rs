//! Queues: who waits for an answer on one connection, in the order of asking.

use std::collections::VecDeque;
use std::task::Waker;

use redis::Value;
use tokio::time::Instant;

use super::resp::LARGEST;

/// Why a request has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Silence {
    /// It was never sent: the link was already down.
    Unsent(String),
    /// It was sent, or may have been.
    Lost(String),
}

/// The values that all commands of a request were answered with.
pub(super) type Answer = Result<Vec<Value>, Silence>;

/// What one command was answered with.
pub(super) struct Reply {
    pub value: Value,
    /// How long it was on the wire.
    pub bytes: usize,
}

/// Bytes of answers that nobody has taken yet. Who waits takes them in a moment, so there are never
/// many, unless a server sends more than anybody can take.
const MOST_HELD: usize = 4 * LARGEST;

/// A request's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ticket(usize);

/// Requests between asking and taking the answer. Bytes are counted from the connection's
/// beginning.
#[derive(Default)]
pub(super) struct Queue {
    slots: Vec<Slot>,
    free: Vec<usize>,
    /// Slots without an answer, oldest first.
    order: VecDeque<usize>,
    /// How many of them somebody waits for.
    waiting: usize,
    /// Bytes of all that was asked.
    asked: u64,
    /// Bytes that were handed to the socket.
    handed: u64,
    /// Bytes that may have reached the server.
    sent: u64,
    /// Bytes of the values in the slots.
    held: usize,
}

struct Slot {
    state: State,
    values: Vec<Value>,
    /// How long the values were on the wire.
    bytes: usize,
    wanted: usize,
    /// Where the request's bytes begin.
    start: u64,
    since: Instant,
}

enum State {
    Free,
    Waiting(Waker),
    /// The answer is still to come, and nobody wants it.
    GivenUp,
    Answered(Answer),
}

impl Queue {
    /// Adds a request of some commands, which are `bytes` long.
    pub fn join(&mut self, wanted: usize, bytes: usize, waker: Waker) -> Ticket {
        let slot = Slot {
            state: State::Waiting(waker),
            values: Vec::with_capacity(wanted),
            bytes: 0,
            wanted,
            start: self.asked,
            since: Instant::now(),
        };
        self.asked += bytes as u64;
        self.waiting += 1;
        let index = if let Some(index) = self.free.pop() {
            self.slots[index] = slot;
            index
        } else {
            self.slots.push(slot);
            self.slots.len() - 1
        };
        self.order.push_back(index);
        Ticket(index)
    }

    /// Changes whom to wake.
    pub fn wait(&mut self, Ticket(index): Ticket, waker: &Waker) {
        if let State::Waiting(known) = &mut self.slots[index].state {
            known.clone_from(waker);
        }
    }

    /// The answer, once; the ticket is void then.
    pub fn take(&mut self, Ticket(index): Ticket) -> Option<Answer> {
        let state = &mut self.slots[index].state;
        if !matches!(state, State::Answered(_)) {
            return None;
        }
        let State::Answered(answer) = std::mem::replace(state, State::Free) else { return None };
        self.vacate(index);
        Some(answer)
    }

    /// Nobody waits for this one any more.
    pub fn give_up(&mut self, ticket: Ticket) {
        if self.take(ticket).is_none() {
            self.slots[ticket.0].state = State::GivenUp;
            self.waiting -= 1;
        }
    }

    /// Whether nobody waits but one.
    pub fn is_alone(&self) -> bool {
        self.waiting == 1
    }

    /// Whether nobody waits at all.
    pub fn is_deserted(&self) -> bool {
        self.waiting == 0
    }

    /// Whether something is not sent, or not all of it.
    pub fn is_unsent(&self) -> bool {
        self.sent < self.asked
    }

    /// Who waits longest.
    pub fn first(&self) -> Option<Waker> {
        self.order.iter().find_map(|&index| match &self.slots[index].state {
            State::Waiting(waker) => Some(waker.clone()),
            _ => None,
        })
    }

    /// Since when the oldest request is without an answer.
    pub fn oldest(&self) -> Option<Instant> {
        self.order.front().map(|&index| self.slots[index].since)
    }

    /// All that was asked is in the socket's hands now.
    pub fn hand_over(&mut self) {
        self.handed = self.asked;
    }

    /// So many bytes may have reached the server.
    pub fn mark_sent(&mut self, sent: u64) {
        self.sent = sent;
    }

    /// Gives the values to those who asked for them, in order, and counts requests that are
    /// answered. `me` needs no waking. An error means that the connection makes no sense any more.
    pub fn answer(
        &mut self,
        replies: &mut Vec<Reply>,
        me: Ticket,
        wakes: &mut Vec<Waker>,
    ) -> (usize, Result<(), String>) {
        let mut answered = 0;
        for Reply { value, bytes } in replies.drain(..) {
            let Some(&index) = self.order.front() else {
                return (answered, Err("an answer without a question".to_owned()));
            };
            self.held += bytes;
            if self.held > MOST_HELD {
                return (answered, Err(format!("more than {MOST_HELD} bytes of answers wait")));
            }
            let slot = &mut self.slots[index];
            slot.bytes += bytes;
            let early = slot.start >= self.sent;
            match &value {
                // Before it hangs up on a client that it does not want, a server says why.
                Value::ServerError(_) if early => slot.values = vec![value; slot.wanted],
                _ if early => return (answered, Err("an answer before the question".to_owned())),
                _ => slot.values.push(value),
            }
            if slot.values.len() < slot.wanted {
                continue;
            }
            let answer = Ok(std::mem::take(&mut slot.values));
            self.order.pop_front();
            answered += 1;
            self.settle(index, answer, Some(me), wakes);
            if early {
                return (answered, Err("the server refused the connection".to_owned()));
            }
        }
        (answered, Ok(()))
    }

    /// Nothing more will be answered. If the socket is in somebody's hands, whatever it was handed
    /// may have been sent.
    pub fn fail(&mut self, cause: &str, in_hand: bool, wakes: &mut Vec<Waker>) {
        let sent = if in_hand { self.handed } else { self.sent };
        while let Some(index) = self.order.pop_front() {
            let silence = if self.slots[index].start < sent {
                Silence::Lost(cause.to_owned())
            } else {
                Silence::Unsent(cause.to_owned())
            };
            self.settle(index, Err(silence), None, wakes);
        }
    }

    fn settle(&mut self, index: usize, answer: Answer, me: Option<Ticket>, wakes: &mut Vec<Waker>) {
        let state = &mut self.slots[index].state;
        if let State::Waiting(waker) = std::mem::replace(state, State::Answered(answer)) {
            self.waiting -= 1;
            if me != Some(Ticket(index)) {
                wakes.push(waker);
            }
        } else {
            *state = State::Free;
            self.vacate(index);
        }
    }

    /// A slot has nothing in it any more.
    fn vacate(&mut self, index: usize) {
        self.held -= std::mem::take(&mut self.slots[index].bytes);
        self.free.push(index);
    }
}

impl Silence {
    pub fn cause(self) -> String {
        match self {
            Self::Unsent(cause) | Self::Lost(cause) => cause,
        }
    }
}
