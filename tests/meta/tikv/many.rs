//! Many clients at once: what each of them does for itself is not in the way of the others.

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

/// A volume on a server of its own with some clients that have a session and ids already.
struct Crowd {
    server: TikvServer,
    clients: Vec<Arc<Meta>>,
}

impl Crowd {
    /// Clients with a session; what they count they flush every second or so.
    async fn with_sessions() -> Self {
        let crowd = Self::new().await;
        for meta in &crowd.clients {
            meta.start(Registration::New).await.expect("session");
        }
        crowd
    }

    /// Clients that do nothing but what the test asks for.
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
            // Ids are taken ahead, many at a time.
            meta.dir(&format!("of{number}")).await;
            meta.new_slice().await.expect("slice id");
            meta.flush().await.expect("flush");
            clients.push(meta);
        }
        Self { server, clients }
    }

    /// Commits that were taken back so far: each one a conflict.
    fn taken_back(&self) -> u64 {
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

/// Each in its own directory: no key of the volume is written by all of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_in_directories_of_their_own_never_conflict() {
    let crowd = Crowd::new().await;
    let before = crowd.taken_back();
    let works = crowd.clients.iter().enumerate().map(|(i, meta)| work(meta.clone(), i));
    join_all(works).await;
    assert_eq!(crowd.taken_back(), before);
    assert!(crowd.clients.iter().all(|meta| meta.counts().conflicts() == 0));
}

/// All that is removed within an hour goes to the same directory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn regression_removing_to_the_trash_never_conflicts() {
    let crowd = Crowd::on(setting_with_trash()).await;
    let works = crowd.clients.iter().enumerate().map(|(i, meta)| work(meta.clone(), i));
    join_all(works).await;
    // The hour is there already.
    for (number, meta) in crowd.clients.iter().enumerate() {
        meta.rm(&format!("of{number}/f0")).await.expect("unlink");
    }
    let before = crowd.taken_back();
    let removed = (1..EACH).flat_map(|i| {
        crowd.clients.iter().enumerate().map(move |(number, meta)| async move {
            meta.rm(&format!("of{number}/f{i}")).await.expect("unlink");
        })
    });
    // Those of one client wait for their turn with the directory; those of others do not.
    join_all(removed).await;
    assert_eq!(crowd.taken_back(), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heartbeats_at_the_same_moment_never_conflict() {
    let crowd = Crowd::with_sessions().await;
    let sessions = crowd.clients[0].engine().sessions().await.expect("sessions");
    assert_eq!(sessions.len(), CLIENTS);
    let before = crowd.taken_back();
    for beat in 0..10 {
        let beats = crowd.clients.iter().zip(&sessions).map(async |(meta, session)| {
            meta.engine().extend_session(session.sid, session.expire + beat).await.expect("beat")
        });
        assert!(join_all(beats).await.into_iter().all(|there| there));
    }
    assert_eq!(crowd.taken_back(), before);
}

/// Usage is one counter for all. It is written behind the operations, some seconds' worth at a
/// time, and what meets there is repeated: nothing is lost and no operation notices.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usage_of_many_clients_adds_up() {
    let crowd = Crowd::with_sessions().await;
    let engine = crowd.clients[0].engine();
    let before = engine.counter(Counter::TotalInodes).await.expect("counter");
    for _ in 0..3 {
        let works = crowd.clients.iter().enumerate().map(async |(number, meta)| {
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
    assert!(crowd.clients.iter().all(|meta| meta.counts().conflicts() == 0));
}
