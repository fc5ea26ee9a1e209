//! The connections: threads that own one each, and passing work to them from async callers.

mod queue;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use tokio::sync::oneshot;

use self::queue::{AbandonOnPanic, Queue};
use self::writer::{ClosureJob, WriteJob};
use crate::error::{Error, Result};
use crate::meta::engine::CommitError;
use crate::meta::engine::sqlite::address::Address;
use crate::meta::engine::sqlite::db::Db;
use crate::meta::engine::sqlite::errors::{self, DbResult};

/// Capacity of the two queues. When one is full, callers wait.
const MAX_READS: usize = 4096;
const MAX_WRITES: usize = 4096;

type ReadJob = Box<dyn FnOnce(&Db) + Send>;

pub struct Connections {
    place: Arc<str>,
    reads: Arc<Queue<ReadJob>>,
    writes: Arc<Queue<Box<dyn WriteJob>>>,
    commits: Arc<CommitCounts>,
}

/// How many transactions and writes were committed.
#[derive(Debug, Default)]
pub struct CommitCounts {
    transactions: AtomicU64,
    writes: AtomicU64,
}

impl CommitCounts {
    pub fn add(&self, writes: usize) {
        self.transactions.fetch_add(1, Ordering::Relaxed);
        self.writes.fetch_add(writes as u64, Ordering::Relaxed);
    }

    #[cfg(test)]
    pub fn counts(&self) -> (u64, u64) {
        (self.transactions.load(Ordering::Relaxed), self.writes.load(Ordering::Relaxed))
    }
}

impl Connections {
    /// Opens the connections and starts their threads. A thread that ends returns its connection.
    /// Blocks.
    pub fn open(address: &Address) -> Result<(Self, Vec<JoinHandle<Db>>)> {
        let writer = Db::open_writer(address)?;
        let connections = Self {
            place: Arc::clone(&address.place),
            reads: Arc::new(Queue::new(MAX_READS)),
            writes: Arc::new(Queue::new(MAX_WRITES)),
            commits: Arc::new(CommitCounts::default()),
        };
        let mut threads = Vec::new();
        for _ in 0..reader_count(address) {
            let db = Db::open_reader(address)?;
            let queue = Arc::clone(&connections.reads);
            threads.push(connections.start("sqlite-read", move || {
                run_reads(&db, &queue);
                db
            })?);
        }
        let (queue, commits) = (Arc::clone(&connections.writes), Arc::clone(&connections.commits));
        threads.push(connections.start("sqlite-write", move || {
            writer::run_writes(&writer, &queue, &commits);
            writer
        })?);
        Ok((connections, threads))
    }

    pub fn place(&self) -> &str {
        &self.place
    }

    #[cfg(test)]
    pub fn commits(&self) -> &CommitCounts {
        &self.commits
    }

    /// Runs `work` on one of the reading connections.
    pub async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Db) -> DbResult<T> + Send + 'static,
    ) -> Result<T> {
        let (reply, response) = oneshot::channel();
        let job: ReadJob = Box::new(move |db| {
            if !reply.is_closed() {
                let _ = reply.send(work(db).map_err(|error| db.error(error)));
            }
        });
        self.reads.push(job).await.map_err(|_| self.closed())?;
        response.await.map_err(|_| self.closed())?
    }

    /// Runs `work` in a transaction on the writing connection. Returns once it is committed.
    pub async fn commit<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Db) -> DbResult<T> + Send + 'static,
    ) -> Result<T, CommitError> {
        let (reply, response) = oneshot::channel();
        let job = Box::new(ClosureJob::new(work, reply, Arc::clone(&self.place)));
        self.writes.push(job).await.map_err(|_| CommitError::Failed(self.closed()))?;
        response.await.map_err(|_| CommitError::Unknown(self.closed()))?
    }

    /// Like [`Connections::commit`], for work without guards.
    pub async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Db) -> DbResult<T> + Send + 'static,
    ) -> Result<T> {
        self.commit(work).await.map_err(|error| match error {
            CommitError::Failed(error) | CommitError::Unknown(error) => error,
            CommitError::Conflict => Error::Contended("a write"),
        })
    }

    /// Accepts no more requests. Those already queued are still executed.
    pub fn close(&self) {
        self.reads.close();
        self.writes.close();
    }

    fn closed(&self) -> Error {
        errors::engine_error(&self.place, "the connection is closed")
    }

    fn start(
        &self,
        name: &str,
        body: impl FnOnce() -> Db + Send + 'static,
    ) -> Result<JoinHandle<Db>> {
        let started = thread::Builder::new().name(name.to_owned()).spawn(body);
        started.map_err(|error| {
            errors::engine_error(&self.place, format!("starting a thread: {error}"))
        })
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        self.close();
    }
}

/// Runs on a reading thread until the queue is closed and empty.
fn run_reads(db: &Db, queue: &Queue<ReadJob>) {
    let _guard = AbandonOnPanic(queue);
    while let Some(read) = queue.pop() {
        read(db);
    }
}

/// Returns the number of reading threads. They mostly wait for the disk, so there are several even
/// on a small machine.
fn reader_count(address: &Address) -> usize {
    let cores = thread::available_parallelism().map_or(2, usize::from);
    // One connection belongs to the writer.
    let allowed = address.max_connections.map_or(usize::MAX, |max| max.saturating_sub(1).max(1));
    cores.clamp(4, 8).min(allowed)
}
