//! Many clients at once: independent work of one does not conflict with that of the others.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use jfs::meta::record::{Counter, Setting};
use jfs::meta::{Meta, Options, Registration};

use crate::support::tikv::TikvServer;
use crate::support::tree::Tree;
use crate::support::volume::{setting, setting_with_trash};

const CLIENTS: usize = 6;
const EACH: usize = 20;

/// A volume on a separate server with some clients that have allocated ids in advance.
struct Clients {
    server: TikvServer,
    clients: Vec<Arc<Meta>>,
}

impl Clients {
    /// Clients with a session, which flush usage about every second.
    async fn with_sessions() -> Self {
        let all = Self::new().await;
        for meta in &all.clients {
            meta.start(Registration::New).await.expect("session");
        }
        all
    }

    /// Clients without background work.
    async fn new() -> Self {
        Self::on(setting()).await
    }

    async fn on(setting: Setting) -> Self {
        let server = TikvServer::start(&[]);
        let url = server.fresh_url();
        let mut clients = Vec::new();
        for number in 0..CLIENTS {
            let heartbeat = Duration::from_hours(1);
            let options = Options { no_background_jobs: true, heartbeat, ..Options::default() };
            let meta = Meta::attach(&url, options).await.expect("connect");
            if number == 0 {
                meta.init(setting.clone(), false).await.expect("format");
            }
            meta.load().await.expect("load");
            // Allocates ids in advance, many at a time.
            meta.dir(&format!("of{number}")).await;
            meta.new_slice().await.expect("slice id");
            meta.flush().await.expect("flush");
            clients.push(meta);
        }
        Self { server, clients }
    }

    /// Returns the number of commits rolled back so far, each because of a conflict.
    fn rollbacks(&self) -> u64 {
        self.server.calls().get("KvBatchRollback").copied().unwrap_or(0)
    }
}

async fn work(meta: Arc<Meta>, number: usize) {
    for i in 0..EACH {
        let path = format!("of{number}/f{i}");
        meta.file(&path).await;
        meta.fill(&path, 4096).await;
    }
}

/// Each works in its own directory: no key of the volume is written by all of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_in_separate_directories_never_conflict() {
    let all = Clients::new().await;
    let before = all.rollbacks();
    let works = all.clients.iter().enumerate().map(|(i, meta)| work(meta.clone(), i));
    join_all(works).await;
    assert_eq!(all.rollbacks(), before);
    assert!(all.clients.iter().all(|meta| meta.counts().conflicts() == 0));
}

/// Everything removed within an hour goes to the same directory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn regression_removing_to_the_trash_never_conflicts() {
    let all = Clients::on(setting_with_trash()).await;
    let works = all.clients.iter().enumerate().map(|(i, meta)| work(meta.clone(), i));
    join_all(works).await;
    // Creates the directory of the hour.
    for (number, meta) in all.clients.iter().enumerate() {
        meta.rm(&format!("of{number}/f0")).await.expect("unlink");
    }
    let before = all.rollbacks();
    let removed = (1..EACH).flat_map(|i| {
        all.clients.iter().enumerate().map(move |(number, meta)| async move {
            meta.rm(&format!("of{number}/f{i}")).await.expect("unlink");
        })
    });
    // Removals of one client run one after the other; those of other clients do not wait for them.
    join_all(removed).await;
    assert_eq!(all.rollbacks(), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heartbeats_at_the_same_moment_never_conflict() {
    let all = Clients::with_sessions().await;
    let sessions = all.clients[0].engine().sessions().await.expect("sessions");
    assert_eq!(sessions.len(), CLIENTS);
    let before = all.rollbacks();
    for beat in 0..10 {
        let beats = all.clients.iter().zip(&sessions).map(async |(meta, session)| {
            meta.engine().extend_session(session.sid, session.expire + beat).await.expect("beat")
        });
        assert!(join_all(beats).await.into_iter().all(|there| there));
    }
    assert_eq!(all.rollbacks(), before);
}

/// All clients add to one usage counter. They flush it outside the operations, every few seconds,
/// and repeat conflicting flushes: nothing is lost, and no operation has a conflict.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usage_of_many_clients_adds_up() {
    let all = Clients::with_sessions().await;
    let engine = all.clients[0].engine();
    let before = engine.counter(Counter::TotalInodes).await.expect("counter");
    for _ in 0..3 {
        let works = all.clients.iter().enumerate().map(async |(number, meta)| {
            for i in 0..EACH {
                meta.file(&format!("of{number}/f{i}")).await;
            }
            meta.flush().await.expect("flush");
            for i in 1..EACH {
                meta.rm(&format!("of{number}/f{i}")).await.expect("unlink");
            }
            meta.mv(
                &format!("of{number}/f0"),
                &format!("of{number}/kept-{}", rand::random::<u32>()),
            )
            .await
            .expect("rename");
            meta.flush().await.expect("flush");
        });
        join_all(works).await;
    }
    let after = engine.counter(Counter::TotalInodes).await.expect("counter");
    assert_eq!(after - before, i64::try_from(3 * CLIENTS).expect("a small number"));
    assert!(all.clients.iter().all(|meta| meta.counts().conflicts() == 0));
}
