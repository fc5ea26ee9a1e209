//! The writer: one thread with one connection, which commits in groups.
//!
//! All queued writes run in one transaction, each in a savepoint of its own, so that one that
//! conflicts or fails is rolled back alone. Their callers get a response after the COMMIT, so the
//! whole group waits for the disk once.

use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rusqlite::ErrorCode;
use tokio::sync::oneshot;

use super::CommitCounts;
use super::queue::{AbandonOnPanic, Queue};
use crate::error::Error;
use crate::meta::engine::CommitError;
use crate::meta::engine::sqlite::db::Db;
use crate::meta::engine::sqlite::errors::{self, DbError, DbResult};

/// Writes in one transaction. It bounds how long the database is locked for other processes.
const MAX_GROUP: usize = 512;
/// How often to wait for another process's lock, each time for the connection's timeout.
const BUSY_ATTEMPTS: u32 = 6;
/// After a group, its callers are likely to send their next writes at once. Waiting this long for
/// them makes one transaction out of two, and lets other processes take the lock.
const GATHER_TIMEOUT: Duration = Duration::from_micros(200);

/// Other processes poll for the lock and would hardly ever find it free between two groups. While
/// they write too, the lock stays free for the time it was held, divided by this.
const YIELD_DIVISOR: u32 = 3;
/// Other processes count as writing for this long after their last commit. A mounted client commits
/// with every heartbeat, every 12 s.
const OTHERS_ACTIVE: Duration = Duration::from_secs(30);

/// One write, from the request to its response.
pub trait WriteJob: Send {
    /// Does the work. Returns false if it must be rolled back.
    fn run(&mut self, db: &Db) -> bool;
    /// Sends the response, once the transaction has ended.
    fn respond(self: Box<Self>, end: &TransactionEnd);
    /// Returns whether the caller has gone away, so that work not yet started can be skipped.
    fn is_abandoned(&self) -> bool;
}

/// How the transaction of a group ended.
pub enum TransactionEnd {
    Committed,
    /// Certainly without effect.
    Failed(Error),
    Unknown(Error),
}

/// A [`WriteJob`] made of a closure.
pub struct ClosureJob<T, F> {
    work: Option<F>,
    done: Option<DbResult<T>>,
    reply: oneshot::Sender<Result<T, CommitError>>,
    place: Arc<str>,
}

impl<T, F> ClosureJob<T, F> {
    pub fn new(work: F, reply: oneshot::Sender<Result<T, CommitError>>, place: Arc<str>) -> Self {
        Self { work: Some(work), done: None, reply, place }
    }
}

impl<T: Send, F: FnOnce(&Db) -> DbResult<T> + Send> WriteJob for ClosureJob<T, F> {
    fn run(&mut self, db: &Db) -> bool {
        self.done = self.work.take().map(|work| work(db));
        matches!(self.done, Some(Ok(_)))
    }

    fn respond(self: Box<Self>, end: &TransactionEnd) {
        let response = match (self.done, end) {
            (Some(Err(error)), _) => Err(error.into_commit_error(&self.place)),
            (_, TransactionEnd::Failed(error)) => Err(CommitError::Failed(error.clone())),
            (Some(Ok(value)), TransactionEnd::Committed) => Ok(value),
            (Some(Ok(_)), TransactionEnd::Unknown(error)) => {
                Err(CommitError::Unknown(error.clone()))
            }
            (None, _) => Err(CommitError::Failed(errors::engine_error(
                &self.place,
                "the write was not executed",
            ))),
        };
        // The caller may have gone away.
        let _ = self.reply.send(response);
    }

    fn is_abandoned(&self) -> bool {
        self.reply.is_closed()
    }
}

/// Runs on the writing thread until the queue is closed and empty.
pub fn run_writes(db: &Db, queue: &Queue<Box<dyn WriteJob>>, commits: &CommitCounts) {
    let _guard = AbandonOnPanic(queue);
    let mut others = OtherWriters::default();
    let mut last = 0;
    loop {
        if last > 1 {
            queue.gather(last, GATHER_TIMEOUT);
        }
        let mut group = queue.pop_all(MAX_GROUP);
        if group.is_empty() {
            return;
        }
        group.retain(|write| !write.is_abandoned());
        last = group.len();
        if last == 0 {
            continue;
        }
        let start = Instant::now();
        let end = transact(db, &mut group);
        let held = start.elapsed();
        if matches!(end, TransactionEnd::Committed) {
            commits.add(last);
        }
        for write in group {
            write.respond(&end);
        }
        if others.are_active(db) {
            sleep(held / YIELD_DIVISOR);
        }
    }
}

/// Other processes that write to the database.
#[derive(Default)]
struct OtherWriters {
    /// The database's version when last checked. Commits of this connection do not change it.
    version: Option<i64>,
    seen: Option<Instant>,
}

impl OtherWriters {
    fn are_active(&mut self, db: &Db) -> bool {
        let version = db.data_version().ok();
        if self.version.is_some() && self.version != version {
            self.seen = Some(Instant::now());
        }
        self.version = version;
        self.seen.is_some_and(|seen| seen.elapsed() < OTHERS_ACTIVE)
    }
}

fn transact(db: &Db, group: &mut [Box<dyn WriteJob>]) -> TransactionEnd {
    if let Err(error) = begin(db) {
        return TransactionEnd::Failed(error);
    }
    // A single write needs no savepoint: the transaction is its own.
    if let [only] = group {
        if !only.run(db) {
            roll_back(db);
            return TransactionEnd::Failed(rolled_back(db));
        }
        return commit(db);
    }
    for write in group {
        if let Err(error) = run_in_savepoint(db, write.as_mut()) {
            roll_back(db);
            return TransactionEnd::Failed(db.error(error));
        }
    }
    commit(db)
}

/// Runs one write, and rolls it back if it fails. An error means that the whole transaction is
/// lost.
fn run_in_savepoint(db: &Db, write: &mut dyn WriteJob) -> DbResult<()> {
    db.exec("SAVEPOINT one", [])?;
    let keep = write.run(db);
    if !db.in_transaction() {
        return Err(DbError::Other(rolled_back(db)));
    }
    if !keep {
        db.exec("ROLLBACK TO one", [])?;
    }
    db.exec("RELEASE one", [])?;
    Ok(())
}

fn rolled_back(db: &Db) -> Error {
    let why = "SQLite rolled the transaction back (disk full, I/O error or out of memory)";
    errors::engine_error(db.place(), why)
}

fn commit(db: &Db) -> TransactionEnd {
    let Err(error) = exec_when_unlocked(db, "COMMIT") else { return TransactionEnd::Committed };
    let (code, is_busy) = (error.code(), error.is_busy());
    let error = explain_lock(db, error);
    roll_back(db);
    // Without space or without the lock, the commit record was never written. After an I/O error it
    // may be on the disk all the same, and be found there after a crash.
    if is_busy || code == Some(ErrorCode::DiskFull) {
        TransactionEnd::Failed(error)
    } else {
        TransactionEnd::Unknown(error)
    }
}

fn roll_back(db: &Db) {
    if db.in_transaction()
        && let Err(error) = db.exec("ROLLBACK", [])
    {
        tracing::error!("rolling back: {}", db.error(error));
    }
}

fn begin(db: &Db) -> Result<(), Error> {
    exec_when_unlocked(db, "BEGIN IMMEDIATE").map_err(|error| explain_lock(db, error))
}

/// Returns the error to report; for a locked database, with how long it was locked.
fn explain_lock(db: &Db, error: DbError) -> Error {
    if error.is_busy() {
        errors::locked(db.place(), db.timeout() * BUSY_ATTEMPTS)
    } else {
        db.error(error)
    }
}

/// Runs a statement, and waits for the locks of other processes for a bounded time.
fn exec_when_unlocked(db: &Db, sql: &str) -> DbResult<()> {
    for attempt in 1..BUSY_ATTEMPTS {
        match db.exec(sql, []) {
            // SQLite may have given up at once, without waiting for its timeout.
            Err(error) if error.is_busy() => sleep(Duration::from_millis(attempt.into())),
            other => return other.map(|_| ()),
        }
    }
    db.exec(sql, []).map(|_| ())
}
