//! Large volumes stay within the limits of a cluster and of this client's memory.

use std::process::Stdio;
use std::sync::Arc;

use jfs::meta::engine::{Change, Key, Record};
use jfs::meta::record::{CHUNK_SIZE, Slice, SliceSize};
use jfs::meta::{Caller, Ino, Meta, Options, Registration, SliceId};

use crate::support::fixture::long;
use crate::support::juicefs;
use crate::support::tikv::TikvServer;
use crate::support::tree::{Tree, name};
use crate::support::volume::setting;

/// Lower than those of a real cluster: messages of 4 MiB, transactions of 1 MiB and 10,000 keys.
const LIMITS: [&str; 6] =
    ["-max-message", "4194304", "-max-keys", "10000", "-max-bytes", "1048576"];

async fn formatted(url: &str) -> Arc<Meta> {
    let options = Options { no_background_jobs: true, ..Options::default() };
    let meta = Meta::attach(url, options).await.expect("connect");
    meta.init(setting(), false).await.expect("format");
    meta.load().await.expect("load");
    meta.start(Registration::New).await.expect("session");
    meta
}

/// Commits many changes, 500 at a time.
async fn commit(meta: &Meta, changes: &[Change]) {
    for some in changes.chunks(500) {
        let mut txn = meta.engine().begin();
        txn.commit(some).await.expect("commit");
    }
}

fn slice(id: u64) -> Slice {
    Slice { pos: 0, id: SliceId(id), size: 4096, off: 0, len: 4096 }
}

/// Removing the file in one commit would write more keys than allowed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_file_is_deleted_within_the_limits() {
    const CHUNKS: u32 = 1200;
    let server = TikvServer::start(&["-max-message", "4194304", "-max-keys", "1000"]);
    let meta = formatted(&server.fresh_url()).await;
    let ino = meta.file("large").await;
    let append = |index: u32| {
        let slices = vec![slice(1_000_000 + u64::from(index))];
        Change::AppendSlices { ino, index, slices, if_present: false }
    };
    // The length first: growing over existing chunks would write to each of them.
    meta.truncate(&Caller::root(), ino, u64::from(CHUNKS) * CHUNK_SIZE).await.expect("grow");
    commit(&meta, &(0..CHUNKS).map(append).collect::<Vec<_>>()).await;
    assert_eq!(meta.engine().chunk_indexes(ino, 0).await.expect("chunks").len(), CHUNKS as usize);
    meta.rm("large").await.expect("unlink");
    meta.idle().await;
    assert!(meta.engine().chunk_indexes(ino, 0).await.expect("chunks").is_empty());
    assert!(meta.engine().deleted_files(i64::MAX, 10).await.expect("files").is_empty());
}

/// A chunk that was written to many times and never compacted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chunk_of_many_slices_is_read_within_the_limits() {
    const SLICES: u64 = 30_000;
    let server = TikvServer::start(&LIMITS);
    let meta = formatted(&server.fresh_url()).await;
    let ino = meta.file("torn").await;
    let slices = (1..=SLICES).map(slice).collect();
    commit(&meta, &[Change::AppendSlices { ino, index: 0, slices, if_present: false }]).await;
    match meta.engine().read(&[Key::Chunk(ino, 0)]).await.expect("chunk").pop() {
        Some(Record::Chunk(stored)) => assert_eq!(stored.len() as u64, SLICES),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_directory_is_removed_within_the_limits() {
    const FILES: u64 = 2500;
    let server = TikvServer::start(&LIMITS);
    let url = server.fresh_split_url();
    let meta = formatted(&url).await;
    let dir = meta.dir("d").await;
    let node = meta.getattr(meta.file("model").await).await.expect("attr");
    let mut changes = Vec::new();
    for i in 0..FILES {
        let (ino, called) = (Ino(1_000_000 + i), name(format!("a-name-of-some-length-{i}")));
        let attr = jfs::meta::record::Attr { parent: dir, ..node.clone() };
        changes.push(Change::PutAttr(ino, attr));
        let entry = jfs::meta::record::Entry { kind: node.kind, ino };
        changes.push(Change::PutEntry(dir, called, entry));
    }
    commit(&meta, &changes).await;
    meta.remove_tree(&Caller::root(), Ino::ROOT, &name("d"), true).await.expect("removed");
    meta.idle().await;
    let left = server.dump(&url);
    assert!(!left.keys().any(|key| key.starts_with(&[b"A", &dir.0.to_le_bytes()[..]].concat())));
    meta.close().await.expect("close");
    meta.engine().wipe().await.expect("wipe");
    assert!(server.dump(&url).is_empty());
}

/// One page holds more than a message may: it is requested in smaller parts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_that_is_larger_than_a_message_is_listed() {
    const LISTS: u64 = 60;
    const EACH: u64 = 10_000;
    let server = TikvServer::start(&LIMITS);
    let meta = formatted(&server.fresh_url()).await;
    for list in 0..LISTS {
        let sizes = |i| SliceSize { id: SliceId(list * EACH + i + 1), size: 1 };
        let slices: Vec<SliceSize> = (0..EACH).map(sizes).collect();
        commit(&meta, &[Change::PutDelayed { id: SliceId(list + 1), at: 5, slices }]).await;
    }
    let found = meta.engine().delayed_slices(10, usize::MAX).await.expect("listed");
    assert_eq!(found.len() as u64, LISTS);
    assert!(found.iter().all(|list| list.slices.len() as u64 == EACH));
}

/// Reference records of a whole volume are dropped a hundred at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_references_are_dropped_within_the_limits() {
    let server = TikvServer::start(&LIMITS);
    let meta = formatted(&server.fresh_url()).await;
    let track = |id| Change::TrackSlice(SliceSize { id: SliceId(id), size: 1 });
    commit(&meta, &(1..=3000).map(track).collect::<Vec<_>>()).await;
    meta.engine().drop_single_refs().await.expect("dropped");
    assert!(
        !meta.engine().has_slice_ref(SliceSize { id: SliceId(7), size: 1 }).await.expect("read")
    );
    assert!(
        !meta.engine().has_slice_ref(SliceSize { id: SliceId(3000), size: 1 }).await.expect("read")
    );
}

/// The Go client works on a server with the same limits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_go_client_dumps_our_volume_within_the_limits() {
    let server = TikvServer::start(&LIMITS);
    let url = server.fresh_url();
    let meta = formatted(&url).await;
    for d in 0..4 {
        meta.dir(&format!("d{d}")).await;
        for f in 0..100 {
            meta.file(&format!("d{d}/f{f}")).await;
        }
    }
    meta.close().await.expect("close");
    let dumped = tokio::task::spawn_blocking(move || juicefs::juicefs(&["dump", &url]).ok());
    let dumped = juicefs::parse_json_output(&dumped.await.expect("no panic").stdout);
    let entries = dumped["FSTree"]["entries"]["d3"]["entries"].as_object().expect("entries");
    assert_eq!(entries.len(), 100);
}

/// Names the volume that this program lists as a separate process.
const LISTED: &str = "JFS_TEST_LISTED";

/// Lists a directory and prints the peak memory. Started directly, it lists a small directory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_is_listed_page_by_page() {
    let (url, count) = if let Ok(listed) = std::env::var(LISTED) {
        let (url, count) = listed.split_once(' ').expect("an address and a number");
        (url.to_owned(), count.parse().expect("a number"))
    } else {
        let url = TikvServer::shared().fresh_split_url();
        formatted(&url).await.close().await.expect("close");
        TikvServer::shared().fill(&url, 1, 10_000);
        (url, 10_000)
    };
    let options = Options { no_background_jobs: true, ..Options::default() };
    let meta = Meta::connect(&url, options).await.expect("connect");
    for with_attrs in [false, true] {
        let mut listing = meta.list(Ino::ROOT, with_attrs);
        let (mut seen, mut last) = (0_usize, None);
        while let Some(page) = listing.next().await.expect("a page") {
            seen += page.len();
            for entry in page {
                assert!(last.as_ref().is_none_or(|last| *last < entry.name), "in order");
                last = Some(entry.name);
            }
        }
        assert_eq!(seen, count);
    }
    println!("peak {} KiB", peak());
}

/// Returns the peak memory of this process, in KiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// The memory of a listing does not grow with the directory: it is the same for 5000 entries and
/// for many more. With `JFS_TEST_LONG=1` the directory has a million.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_huge_directory_is_listed_in_bounded_memory() {
    let server = TikvServer::start(&["-stores", "3"]);
    let many = if long() { 1_000_000 } else { 150_000 };
    let small = listed(&server, 5000).await;
    let huge = listed(&server, many).await;
    println!("5000 entries: {small} KiB, {many} entries: {huge} KiB");
    assert!(huge < small + 24 * 1024, "5000 entries: {small} KiB, {many} entries: {huge} KiB");
}

/// Returns the peak memory of a process that lists a directory with this many entries, in several
/// regions.
async fn listed(server: &TikvServer, count: usize) -> u64 {
    let url = server.fresh_split_url();
    formatted(&url).await.close().await.expect("close");
    for part in 1..4 {
        let middle = format!("{:08}", count * part / 4);
        let key = [&b"A\x01\0\0\0\0\0\0\0D"[..], middle.as_bytes()].concat();
        server.split(&url, &key);
    }
    server.fill(&url, 1, count);
    let program = std::env::current_exe().expect("this program");
    let listed = tokio::process::Command::new(program)
        .args(["--exact", "tikv::limits::a_directory_is_listed_page_by_page", "--nocapture"])
        .env(LISTED, format!("{url} {count}"))
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = listed.await.expect("a process");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let peak = said.lines().find_map(|line| line.strip_prefix("peak "));
    let peak = peak.and_then(|rest| rest.strip_suffix(" KiB")).expect("a figure");
    peak.parse().expect("a number")
}
