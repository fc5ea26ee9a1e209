//! Lines: one connection that many requests share, driven by those who wait on it.
//!
//! There is no task that owns the socket. A request puts its commands into a common buffer, and one
//! of those who wait reads and writes for all: alone, a request never leaves its task; with many in
//! flight, one read brings the answers of many and one write sends the questions of many.
//!
//! The socket's readiness rings a bell, and the bell wakes the one that has waited longest. The
//! rule that keeps a line going: while something is `due` and somebody waits, one of those who wait
//! has been woken and has not looked yet. So who looks does what is due, and who leaves passes it
//! on.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};

use redis::Pipeline;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::queue::{Answer, Queue, Silence, Ticket};
use super::socket::{Socket, Stream, Turn};
use crate::sync::{Mutex, MutexGuard};

/// Requests on their way; more wait for their turn.
const MOST: usize = 1024;

/// So many bytes to be sent wait for no more: the server can begin with them while others plan.
const PLENTY: usize = 16 << 10;

pub(super) struct Line {
    /// Whom errors name.
    peer: String,
    desk: Mutex<Desk>,
    bell: Waker,
    room: Semaphore,
    dead: AtomicBool,
}

/// What those who wait share.
struct Desk {
    queue: Queue,
    /// Packed commands that the socket has not been handed.
    out: Vec<u8>,
    /// None while somebody works with it, and when the line is dead.
    socket: Option<Socket>,
    /// There is something to read or to write.
    due: bool,
    /// There is for the one that works with the socket.
    again: bool,
    /// Why the line is dead.
    end: Option<String>,
}

/// What is to be done when the desk is free again: wakers and streams may call back.
#[derive(Default)]
struct Rest {
    wakes: Vec<Waker>,
    socket: Option<Socket>,
}

impl Line {
    pub fn new(peer: String, stream: Stream) -> Arc<Self> {
        let desk = Desk {
            queue: Queue::default(),
            out: Vec::new(),
            socket: Some(Socket::new(stream)),
            due: false,
            again: false,
            end: None,
        };
        Arc::new_cyclic(|line| Self {
            peer,
            desk: Mutex::new(desk),
            bell: Waker::from(Arc::new(Bell(line.clone()))),
            room: Semaphore::new(MOST),
            dead: AtomicBool::new(false),
        })
    }

    /// Sends all commands at once and waits for their answers; errors of single commands are among
    /// the values. Who stops waiting takes nothing back: what was asked may still be carried out.
    pub async fn exchange(&self, pipe: &Pipeline) -> Answer {
        if pipe.is_empty() {
            return Ok(Vec::new());
        }
        // A permit comes back with the answer, and that may be after the caller has left. Dead lines
        // have none, and say so below.
        if let Ok(permit) = self.room.acquire().await {
            permit.forget();
        }
        Waiting { line: self, state: Progress::New(pipe) }.await
    }

    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    /// Ends the connection under all requests that still wait.
    pub fn cut(&self, cause: &str) {
        let mut rest = Rest::default();
        self.end(&mut self.lock(), cause.to_owned(), &mut rest);
        rest.finish();
    }

    /// Since when the oldest request has waited.
    pub fn oldest(&self) -> Option<Instant> {
        self.lock().queue.oldest()
    }

    /// Does what is to be done on the socket, unless somebody is at it, who then goes on.
    fn drive<'a>(&'a self, mut desk: MutexGuard<'a, Desk>, me: Ticket) {
        let (mut rest, mut values) = (Rest::default(), Vec::new());
        desk.due = false;
        let Some(mut socket) = desk.socket.take() else {
            desk.again = true;
            return;
        };
        loop {
            desk.again = false;
            desk.queue.hand_over();
            socket.load(&mut desk.out);
            drop(desk);
            let done = socket.turn(&self.bell, &mut values);
            desk = self.lock();
            // In this order: what has arrived did so before anything was sent in this turn.
            let (answered, sense) = desk.queue.answer(&mut values, me, &mut rest.wakes);
            desk.queue.mark_sent(socket.sent());
            self.room.add_permits(answered);
            // Somebody else may have ended the line.
            if desk.end.is_some() {
                rest.socket = Some(socket);
                break;
            }
            let turn = match sense.and(done) {
                Ok(turn) => turn,
                Err(cause) => {
                    desk.socket = Some(socket);
                    let cause = format!("lost the connection to {}: {cause}", self.peer);
                    self.end(&mut desk, cause, &mut rest);
                    break;
                }
            };
            if turn == Turn::More {
                // Others on this thread have their turn first; then one of those who wait.
                desk.due = true;
                rest.wakes.extend(desk.queue.first());
            }
            if turn == Turn::More || !desk.again {
                desk.socket = Some(socket);
                self.end_if_orphaned(&mut desk, &mut rest);
                break;
            }
        }
        drop(desk);
        rest.finish();
    }

    /// What nobody waits for must not be sent at any later time, when somebody else comes along.
    fn end_if_orphaned(&self, desk: &mut Desk, rest: &mut Rest) {
        let unsent = desk.queue.is_unsent() || desk.socket.as_ref().is_some_and(Socket::holds_back);
        if unsent && desk.queue.is_deserted() && desk.socket.is_some() {
            self.end(desk, format!("all requests to {} were given up", self.peer), rest);
        }
    }

    fn end(&self, desk: &mut Desk, cause: String, rest: &mut Rest) {
        if desk.end.is_some() {
            return;
        }
        rest.socket = desk.socket.take();
        desk.queue.fail(&cause, rest.socket.is_none(), &mut rest.wakes);
        desk.out = Vec::new();
        desk.end = Some(cause);
        self.dead.store(true, Ordering::Release);
        self.room.close();
    }

    fn lock(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock()
    }
}

impl Desk {
    fn ask(&mut self, pipe: &Pipeline, waker: Waker) -> Result<Ticket, Silence> {
        if let Some(cause) = &self.end {
            return Err(Silence::Unsent(cause.clone()));
        }
        let before = self.out.len();
        for command in pipe.cmd_iter() {
            command.write_packed_command(&mut self.out);
        }
        Ok(self.queue.join(pipe.len(), self.out.len() - before, waker))
    }

    /// Whom to wake when somebody leaves who may have been woken for what is due.
    fn heir(&self) -> Option<Waker> {
        if self.due { self.queue.first() } else { None }
    }
}

/// A request, from asking to taking the answer.
struct Waiting<'a> {
    line: &'a Line,
    state: Progress<'a>,
}

enum Progress<'a> {
    New(&'a Pipeline),
    Asked(Ticket),
    Over,
}

impl Future for Waiting<'_> {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer> {
        let line = self.line;
        let mut desk = line.lock();
        let ticket = match self.state {
            Progress::New(pipe) => {
                let ticket = match desk.ask(pipe, cx.waker().clone()) {
                    Ok(ticket) => ticket,
                    Err(silence) => return Poll::Ready(Err(silence)),
                };
                self.state = Progress::Asked(ticket);
                if !desk.queue.is_alone() && desk.out.len() < PLENTY {
                    // Others are on the move as well: those that can run now get to put their
                    // commands into the same write.
                    if !std::mem::replace(&mut desk.due, true) {
                        drop(desk);
                        cx.waker().wake_by_ref();
                    }
                    return Poll::Pending;
                }
                desk.due = true;
                ticket
            }
            Progress::Asked(ticket) => ticket,
            Progress::Over => return Poll::Pending,
        };
        let mut answer = desk.queue.take(ticket);
        if answer.is_none() {
            desk.queue.wait(ticket, cx.waker());
            if !desk.due {
                return Poll::Pending;
            }
            line.drive(desk, ticket);
            desk = line.lock();
            answer = desk.queue.take(ticket);
        }
        let Some(answer) = answer else { return Poll::Pending };
        self.state = Progress::Over;
        let heir = desk.heir();
        drop(desk);
        wake(heir);
        Poll::Ready(answer)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let Progress::Asked(ticket) = self.state else { return };
        let mut rest = Rest::default();
        let mut desk = self.line.lock();
        desk.queue.give_up(ticket);
        self.line.end_if_orphaned(&mut desk, &mut rest);
        let heir = desk.heir();
        drop(desk);
        wake(heir);
        rest.finish();
    }
}

impl Rest {
    fn finish(self) {
        self.wakes.into_iter().for_each(Waker::wake);
    }
}

fn wake(heir: Option<Waker>) {
    if let Some(heir) = heir {
        heir.wake();
    }
}

/// What the socket wakes. It does not keep the line alive: the line owns the socket, and the socket
/// holds the bell.
struct Bell(Weak<Line>);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let Some(line) = self.0.upgrade() else { return };
        let first = {
            let mut desk = line.lock();
            desk.due = true;
            desk.queue.first()
        };
        wake(first);
    }
}
