//! The writer: one thread, one connection, commits in groups.
//!
//! All writes that wait are done in one transaction, each in a savepoint of its own: one that
//! conflicts or fails is undone alone. They are answered after the COMMIT, which is one wait for
//! the disk for all of them.

use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rusqlite::ErrorCode;
use tokio::sync::oneshot;

use super::db::Db;
use super::fault::{self, Fault, Outcome};
use super::link::Commits;
use super::queue::{Queue, Serving};
use crate::error::Error;
use crate::meta::engine::CommitError;

/// Writes in one transaction. It bounds how long other processes find the database locked.
const MAX_GROUP: usize = 512;
/// Times to wait for another process's lock, each for the connection's timeout.
const BUSY_ATTEMPTS: u32 = 6;
/// After a group, the callers that it answered are about to come back: waiting so long for them
/// makes one transaction of what would be two, and lets other processes have the lock.
const GATHER: Duration = Duration::from_micros(200);

/// Other processes poll for the lock and would hardly ever find it free between two groups. While
/// they write as well, it is left free for this part of the time that it was held.
const SHARE: u32 = 3;
/// Others count as writing for so long after their last commit. A mounted client commits with every
/// heartbeat, 12 s apart.
const NEIGHBOURLY: Duration = Duration::from_secs(30);

/// One write, from the request to its answer.
pub trait Write: Send {
    /// Does the work; false if it must be undone.
    fn run(&mut self, db: &Db) -> bool;
    /// Tells the caller, once the transaction has ended.
    fn answer(self: Box<Self>, end: &End);
    /// Whether nobody waits for the answer, so that work not begun can be left out.
    fn is_moot(&self) -> bool;
}

/// How the transaction of a group ended.
pub enum End {
    Committed,
    /// Surely without effect.
    Failed(Error),
    Unknown(Error),
}

/// A [`Write`] made of a closure.
pub struct Job<T, F> {
    work: Option<F>,
    done: Option<Outcome<T>>,
    reply: oneshot::Sender<Result<T, CommitError>>,
    place: Arc<str>,
}

impl<T, F> Job<T, F> {
    pub fn new(work: F, reply: oneshot::Sender<Result<T, CommitError>>, place: Arc<str>) -> Self {
        Self { work: Some(work), done: None, reply, place }
    }
}

impl<T: Send, F: FnOnce(&Db) -> Outcome<T> + Send> Write for Job<T, F> {
    fn run(&mut self, db: &Db) -> bool {
        self.done = self.work.take().map(|work| work(db));
        matches!(self.done, Some(Ok(_)))
    }

    fn answer(self: Box<Self>, end: &End) {
        let answer = match (self.done, end) {
            (Some(Err(fault)), _) => Err(fault.into_commit_error(&self.place)),
            (_, End::Failed(error)) => Err(CommitError::Failed(error.clone())),
            (Some(Ok(value)), End::Committed) => Ok(value),
            (Some(Ok(_)), End::Unknown(error)) => Err(CommitError::Unknown(error.clone())),
            (None, _) => Err(CommitError::Failed(fault::engine(&self.place, "not carried out"))),
        };
        // Nobody may be waiting any more.
        let _ = self.reply.send(answer);
    }

    fn is_moot(&self) -> bool {
        self.reply.is_closed()
    }
}

/// The writer's thread, until the queue is closed and empty.
pub fn serve(db: &Db, queue: &Queue<Box<dyn Write>>, commits: &Commits) {
    let _serving = Serving(queue);
    let mut neighbours = Neighbours::default();
    let mut last = 0;
    loop {
        if last > 1 {
            queue.gather(last, GATHER);
        }
        let mut group = queue.pop_all(MAX_GROUP);
        if group.is_empty() {
            return;
        }
        group.retain(|write| !write.is_moot());
        last = group.len();
        if last == 0 {
            continue;
        }
        let start = Instant::now();
        let end = transact(db, &mut group);
        let held = start.elapsed();
        if matches!(end, End::Committed) {
            commits.add(last);
        }
        for write in group {
            write.answer(&end);
        }
        if neighbours.are_writing(db) {
            sleep(held / SHARE);
        }
    }
}

/// Other processes that write to the database.
#[derive(Default)]
struct Neighbours {
    /// What the database's version was; commits of this connection do not change it.
    version: Option<i64>,
    seen: Option<Instant>,
}

impl Neighbours {
    fn are_writing(&mut self, db: &Db) -> bool {
        let version = db.foreign_version().ok();
        if self.version.is_some() && self.version != version {
            self.seen = Some(Instant::now());
        }
        self.version = version;
        self.seen.is_some_and(|seen| seen.elapsed() < NEIGHBOURLY)
    }
}

fn transact(db: &Db, group: &mut [Box<dyn Write>]) -> End {
    if let Err(error) = patiently(db, "BEGIN IMMEDIATE") {
        return End::Failed(error);
    }
    // One alone needs no savepoint: the transaction is its own.
    if let [only] = group {
        if !only.run(db) {
            roll_back(db);
            return End::Failed(rolled_back(db));
        }
        return commit(db);
    }
    for write in group {
        if let Err(fault) = in_savepoint(db, write.as_mut()) {
            roll_back(db);
            return End::Failed(db.blame(fault));
        }
    }
    commit(db)
}

/// Does one write, and undoes it if it does not succeed. An error means that the transaction as a
/// whole is lost.
fn in_savepoint(db: &Db, write: &mut dyn Write) -> Outcome<()> {
    db.exec("SAVEPOINT one", [])?;
    let keep = write.run(db);
    if !db.in_transaction() {
        return Err(Fault::Told(rolled_back(db)));
    }
    if !keep {
        db.exec("ROLLBACK TO one", [])?;
    }
    db.exec("RELEASE one", [])?;
    Ok(())
}

fn rolled_back(db: &Db) -> Error {
    let why = "SQLite rolled the transaction back (disk full, I/O error or out of memory)";
    fault::engine(db.place(), why)
}

fn commit(db: &Db) -> End {
    let Err(fault) = busy_loop(db, "COMMIT") else { return End::Committed };
    let code = fault.code();
    let busy = fault.is_busy();
    let error = if busy { fault::locked(db.place(), patience(db)) } else { db.blame(fault) };
    roll_back(db);
    // Without space or without the lock, the record that makes a commit was never written. After
    // an I/O error it may be on the disk all the same, and count after a crash.
    if busy || code == Some(ErrorCode::DiskFull) { End::Failed(error) } else { End::Unknown(error) }
}

fn roll_back(db: &Db) {
    if db.in_transaction()
        && let Err(fault) = db.exec("ROLLBACK", [])
    {
        tracing::error!("rolling back: {}", db.blame(fault));
    }
}

fn patiently(db: &Db, sql: &str) -> Result<(), Error> {
    busy_loop(db, sql).map_err(|fault| {
        if fault.is_busy() { fault::locked(db.place(), patience(db)) } else { db.blame(fault) }
    })
}

/// Runs a statement, waiting for other processes' locks within bounds.
fn busy_loop(db: &Db, sql: &str) -> Outcome<()> {
    for attempt in 1..BUSY_ATTEMPTS {
        match db.exec(sql, []) {
            // SQLite may have given up at once, without waiting for its timeout.
            Err(fault) if fault.is_busy() => sleep(Duration::from_millis(attempt.into())),
            other => return other.map(|_| ()),
        }
    }
    db.exec(sql, []).map(|_| ())
}

fn patience(db: &Db) -> Duration {
    db.timeout() * BUSY_ATTEMPTS
}
