//! The link: from async callers to the threads that hold the connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use tokio::sync::oneshot;

use super::address::Address;
use super::db::Db;
use super::fault::{self, Outcome};
use super::queue::{Queue, Serving};
use super::writer::{self, Job, Write};
use crate::error::{Error, Result};
use crate::meta::engine::CommitError;

/// Requests that may wait; more callers wait for room.
const READS: usize = 4096;
const WRITES: usize = 4096;

type Read = Box<dyn FnOnce(&Db) + Send>;

pub struct Link {
    place: Arc<str>,
    reads: Arc<Queue<Read>>,
    writes: Arc<Queue<Box<dyn Write>>>,
    commits: Arc<Commits>,
}

/// How many transactions carried how many writes.
#[derive(Debug, Default)]
pub struct Commits {
    transactions: AtomicU64,
    writes: AtomicU64,
}

impl Commits {
    pub fn add(&self, writes: usize) {
        self.transactions.fetch_add(1, Ordering::Relaxed);
        self.writes.fetch_add(writes as u64, Ordering::Relaxed);
    }

    #[cfg(test)]
    pub fn counts(&self) -> (u64, u64) {
        (self.transactions.load(Ordering::Relaxed), self.writes.load(Ordering::Relaxed))
    }
}

impl Link {
    /// Opens the connections and starts their threads. Blocks.
    pub fn open(address: &Address) -> Result<(Self, Vec<JoinHandle<()>>)> {
        let writer = Db::open_writer(address)?;
        let link = Self {
            place: Arc::clone(&address.place),
            reads: Arc::new(Queue::new(READS)),
            writes: Arc::new(Queue::new(WRITES)),
            commits: Arc::new(Commits::default()),
        };
        let mut threads = Vec::new();
        for _ in 0..readers(address) {
            let db = Db::open_reader(address)?;
            let queue = Arc::clone(&link.reads);
            threads.push(link.start("sqlite-read", move || serve(&db, &queue))?);
        }
        let (queue, commits) = (Arc::clone(&link.writes), Arc::clone(&link.commits));
        threads.push(link.start("sqlite-write", move || writer::serve(&writer, &queue, &commits))?);
        Ok((link, threads))
    }

    pub fn place(&self) -> &str {
        &self.place
    }

    #[cfg(test)]
    pub fn commits(&self) -> &Commits {
        &self.commits
    }

    /// Runs `work` on a connection for reads.
    pub async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Db) -> Outcome<T> + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        let job: Read = Box::new(move |db| {
            if !reply.is_closed() {
                let _ = reply.send(work(db).map_err(|fault| db.blame(fault)));
            }
        });
        self.reads.push(job).await.map_err(|_| self.closed())?;
        answer.await.map_err(|_| self.closed())?
    }

    /// Runs `work` in a transaction on the writer's connection; answers once it is committed.
    pub async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Db) -> Outcome<T> + Send + 'static,
    ) -> Result<T, CommitError> {
        let (reply, answer) = oneshot::channel();
        let job = Box::new(Job::new(work, reply, Arc::clone(&self.place)));
        self.writes.push(job).await.map_err(|_| CommitError::Failed(self.closed()))?;
        answer.await.map_err(|_| CommitError::Unknown(self.closed()))?
    }

    /// As [`Link::write`], for work without guards.
    pub async fn change<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Db) -> Outcome<T> + Send + 'static,
    ) -> Result<T> {
        self.write(work).await.map_err(|error| match error {
            CommitError::Failed(error) | CommitError::Unknown(error) => error,
            CommitError::Conflict => Error::Contended("a write"),
        })
    }

    /// Takes no more requests; those that wait are still carried out.
    pub fn close(&self) {
        self.reads.close();
        self.writes.close();
    }

    fn closed(&self) -> Error {
        fault::engine(&self.place, "the connection is closed")
    }

    fn start(&self, name: &str, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
        let started = thread::Builder::new().name(name.to_owned()).spawn(body);
        started.map_err(|error| fault::engine(&self.place, format!("starting a thread: {error}")))
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.close();
    }
}

/// A reader's thread, until the queue is closed and empty.
fn serve(db: &Db, queue: &Queue<Read>) {
    let _serving = Serving(queue);
    while let Some(read) = queue.pop() {
        read(db);
    }
}

/// Readers wait for the disk more than they compute, so there are some even on a small machine.
fn readers(address: &Address) -> usize {
    let cores = thread::available_parallelism().map_or(2, usize::from);
    // One connection is the writer's.
    let allowed = address.max_connections.map_or(usize::MAX, |max| max.saturating_sub(1).max(1));
    cores.clamp(4, 8).min(allowed)
}
