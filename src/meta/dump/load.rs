//! Loading: an empty store, records in batches, and a mark that tells an unfinished load.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot};
use tracing::warn;

use super::Progress;
use crate::error::{Error, Result};
use crate::meta::Timestamp;
use crate::meta::engine::{Engine, Stored};
use crate::meta::record::{Counter, Setting};

/// Records of one batch.
const BATCH: usize = 2000;
/// Bytes of slices, names and values of one batch, roughly.
const BATCH_BYTES: usize = 2 << 20;
/// A load that wrote nothing for this many seconds has ended.
const STALE: i64 = 30;
/// Seconds between two marks that a load is still running.
const MARK_EVERY: i64 = 5;

/// Makes sure that the store is empty, removes what an interrupted load left, and marks the store
/// as being loaded. Until the load has finished, there is no setting, and so no volume.
pub async fn prepare(engine: &dyn Engine) -> Result<()> {
    let place = engine.address();
    if let Some(raw) = engine.load_setting().await?.filter(|raw| !raw.is_empty()) {
        let name = Setting::decode(&raw).map(|setting| setting.name).unwrap_or_default();
        return Err(Error::Refused(format!("database {place} is used by volume {name}")));
    }
    let now = Timestamp::now().sec;
    if !engine.is_empty().await? {
        // A store without counters was not filled by a load.
        let marked = match engine.counter(Counter::UnfinishedLoad).await {
            Ok(marked) => marked,
            Err(Error::Engine { .. }) => 0,
            Err(other) => return Err(other),
        };
        if marked == 0 {
            return Err(Error::Refused(format!("database {place} is not empty")));
        }
        let age = now.saturating_sub(marked);
        if age < STALE {
            return Err(Error::Refused(format!(
                "database {place} was loaded into {age} seconds ago: if that load does not run any \
                 more, run this again in {} seconds, and it removes what is left",
                STALE - age.max(0)
            )));
        }
        warn!("removing what a load that did not finish left in {place}");
        engine.wipe().await?;
    }
    engine.prepare().await?;
    if !engine.claim(Counter::UnfinishedLoad, now, STALE).await? {
        return Err(Error::Refused(format!("another load into database {place} has just started")));
    }
    Ok(())
}

/// Writes the records that a parser finds.
pub struct Loader {
    pub engine: Arc<dyn Engine>,
    /// Batches written at once.
    pub threads: usize,
    marked: AtomicI64,
}

impl Loader {
    pub fn new(engine: Arc<dyn Engine>, threads: usize) -> Self {
        Self { engine, threads: threads.max(1), marked: AtomicI64::new(0) }
    }

    /// Runs a parser on a thread of its own and writes what it emits, until all is written.
    pub async fn run<T: Send + 'static>(
        &self,
        input: Box<dyn Read + Send>,
        progress: Arc<Progress>,
        parse: impl FnOnce(Box<dyn Read + Send>, &mut Emitter) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (sender, mut batches) = mpsc::channel(self.threads);
        let (done, parsed) = oneshot::channel();
        // Not a thread of the runtime, which would wait for it at the end: it may wait for stdin.
        let thread = std::thread::Builder::new().name("load".to_owned()).spawn(move || {
            let mut emitter = Emitter { sender, batch: Vec::new(), bytes: 0, progress };
            let result = parse(input, &mut emitter);
            let sent = emitter.send();
            drop(emitter);
            // If nobody waits, the load was given up.
            let _ = done.send(result.and_then(|parsed| sent.map(|()| parsed)));
        });
        thread.map_err(|error| Error::internal("loading", error))?;
        let mut writes = FuturesUnordered::new();
        loop {
            tokio::select! {
                Some(written) = writes.next() => written?,
                batch = batches.recv(), if writes.len() < self.threads => match batch {
                    Some(batch) => writes.push(self.write(batch)),
                    None => break,
                },
            }
        }
        while let Some(written) = writes.next().await {
            written?;
        }
        parsed.await.map_err(|_| Error::internal("loading", "the parser has stopped"))?
    }

    pub async fn write(&self, mut records: Vec<Stored>) -> Result<()> {
        if self.engine.properties().refuses_empty_xattr {
            records.retain(|record| match record {
                Stored::Xattr(ino, name, value) if value.is_empty() => {
                    warn!(
                        "left out: xattr {name} of inode {ino} is empty, which {} cannot store",
                        self.engine.name()
                    );
                    false
                }
                _ => true,
            });
        }
        self.engine.put_stored(records).await?;
        let now = Timestamp::now().sec;
        let marked = self.marked.load(Ordering::Relaxed);
        if now >= marked + MARK_EVERY
            && self
                .marked
                .compare_exchange(marked, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        {
            self.engine.claim(Counter::UnfinishedLoad, now, 0).await?;
        }
        Ok(())
    }
}

/// Collects the records of a parser into batches.
pub struct Emitter {
    sender: mpsc::Sender<Vec<Stored>>,
    batch: Vec<Stored>,
    bytes: usize,
    progress: Arc<Progress>,
}

impl Emitter {
    pub fn emit(&mut self, record: Stored) -> Result<()> {
        self.bytes += match &record {
            Stored::Chunk(_, _, slices) => slices.len() * 24,
            Stored::Xattr(_, _, value) | Stored::Symlink(_, value) => value.len(),
            _ => 64,
        };
        self.batch.push(record);
        if self.batch.len() >= BATCH || self.bytes >= BATCH_BYTES { self.send() } else { Ok(()) }
    }

    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    fn send(&mut self) -> Result<()> {
        self.bytes = 0;
        let batch = std::mem::take(&mut self.batch);
        if batch.is_empty() {
            return Ok(());
        }
        // Writing has failed, and its error is reported.
        self.sender.blocking_send(batch).map_err(|_| Error::Interrupted)
    }
}
