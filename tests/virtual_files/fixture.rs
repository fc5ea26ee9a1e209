//! A volume in memory or in SQLite with its virtual files, and a client of these.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use jfs::chunk::{Budget, Cache, CacheOptions};
use jfs::meta::record::Setting;
use jfs::meta::{Caller, Ino, Meta, Options, Registration};
use jfs::vfs::{
    AccessLog, Content, ContentOptions, Invalidator, KernelCache, VirtualFile, VirtualFiles,
};
use jfs::vfs::{VirtualFilesParts, Visibility};
use jfs::volume::{Volume, VolumeOptions};
use nix::fcntl::OFlag;
use prometheus::Registry;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use crate::support::data::name;

/// Blocks of 64 KiB: the smallest in JuiceFS.
pub const BLOCK: usize = 64 << 10;
/// Longer than any operation takes on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// The virtual files of one mount, and the volume below them.
pub struct Fixture {
    /// The mounted directory.
    pub root: Ino,
    pub virtual_files: Arc<VirtualFiles>,
    pub meta: Arc<Meta>,
    pub content: Arc<Content>,
    pub log: Arc<AccessLog>,
    pub registry: Registry,
    /// The invalidations that the kernel received.
    pub invalidations: Arc<Invalidations>,
    pub folder: TempDir,
}

/// Records invalidations.
#[derive(Default)]
pub struct Invalidations(Mutex<Vec<String>>);

impl Invalidations {
    pub fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    fn note(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }
}

struct Kernel(Arc<Invalidations>);

impl KernelCache for Kernel {
    fn invalidate_entry(&self, dir: Ino, name: &[u8]) {
        self.0.note(format!("entry {dir}/{}", String::from_utf8_lossy(name)));
    }

    fn invalidate_content(&self, ino: Ino) {
        self.0.note(format!("content {ino}"));
    }

    fn invalidate_attr(&self, ino: Ino) {
        self.0.note(format!("attr {ino}"));
    }

    fn delivered(&self) -> BoxFuture<'_, ()> {
        async { self.0.note("delivered".to_owned()) }.boxed()
    }
}

/// The options of a fixture.
pub struct FixtureOptions {
    pub url: &'static str,
    pub trash_days: i64,
    pub subdir: &'static str,
    pub prefix: bool,
    pub cache: bool,
    /// For requests and replies.
    pub memory: usize,
}

impl Default for FixtureOptions {
    fn default() -> Self {
        let (url, memory) = ("memkv://NAME", 1 << 30);
        Self { url, trash_days: 0, subdir: "", prefix: false, cache: true, memory }
    }
}

impl Fixture {
    pub async fn new() -> Self {
        Self::with(FixtureOptions::default()).await
    }

    pub async fn sqlite() -> Self {
        Self::with(FixtureOptions { url: "sqlite3://FOLDER/meta.db", ..FixtureOptions::default() })
            .await
    }

    pub async fn with(fixture_options: FixtureOptions) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let fresh = fresh_name();
        let url = fixture_options.url.replace("NAME", &fresh);
        let url = url.replace("FOLDER", folder.path().to_str().unwrap());
        let setting = Setting {
            storage: "mem".to_owned(),
            bucket: format!("mem://{fresh}"),
            block_size: 64,
            trash_days: fixture_options.trash_days,
            ..Setting::new("vol", Uuid::new_v4()).unwrap()
        };
        let meta = Meta::attach(&url, Options::default()).await.unwrap();
        meta.init(setting, false).await.unwrap();
        meta.close().await.unwrap();

        let options = Options { no_background_jobs: true, ..Options::default() };
        let meta = Meta::connect(&url, options).await.unwrap();
        let root = meta.ensure_dir(fixture_options.subdir).await.unwrap();
        meta.start(Registration::New).await.unwrap();
        let cache = CacheOptions {
            dirs: vec![folder.path().join("cache")],
            free_ratio: 0.001,
            ..CacheOptions::default()
        };
        let cache =
            if fixture_options.cache { Some(Cache::open(cache).await.unwrap()) } else { None };
        let registry = Registry::new_custom(Some("juicefs".to_owned()), None).unwrap();
        let options = VolumeOptions { cache, registry: registry.clone(), ..Default::default() };
        let volume = Volume::open(Arc::clone(&meta), options).await.unwrap();
        let store = Arc::clone(volume.store());
        let content =
            Content::new(Arc::clone(&meta), Arc::clone(&store), ContentOptions::default());
        let (invalidations, invalidator) =
            (Arc::<Invalidations>::default(), Arc::<Invalidator>::default());
        invalidator.connect(Box::new(Kernel(Arc::clone(&invalidations))));
        let log = Arc::<AccessLog>::default();
        let virtual_files = VirtualFiles::new(VirtualFilesParts {
            root,
            meta: Arc::clone(&meta),
            content: Arc::clone(&content),
            store,
            registries: vec![registry.clone()],
            config: json!({ "Meta": { "Sid": 1 }, "Format": {}, "Version": "1.4.1" }),
            log: Arc::clone(&log),
            prefix: fixture_options.prefix,
            invalidator,
            memory: Budget::new(fixture_options.memory),
            visibility: Visibility::All,
        });
        Self { root, virtual_files, meta, content, log, registry, invalidations, folder }
    }

    /// Creates a file with this content, stores it and closes it.
    pub async fn file(&self, dir: Ino, at: &str, bytes: &[u8]) -> Ino {
        let made = self.meta.create(&Caller::root(), dir, &name(at), 0o644, 0, true).await;
        let (ino, attr) = made.unwrap();
        let reader = self.content.reader(ino, &attr);
        self.write(ino, 0, bytes).await;
        drop(reader);
        self.meta.close_file(ino).await.unwrap();
        ino
    }

    /// Writes a slice.
    pub async fn write(&self, ino: Ino, off: u64, bytes: &[u8]) {
        self.content.write(ino, off, bytes).await.unwrap();
        self.content.flush(ino).await.unwrap();
    }

    pub async fn dir(&self, dir: Ino, at: &str) -> Ino {
        self.meta.mkdir(&Caller::root(), dir, &name(at), 0o755, 0).await.unwrap().0
    }

    pub async fn has(&self, dir: Ino, at: &str) -> bool {
        self.meta.lookup(&Caller::root(), dir, &name(at)).await.is_ok()
    }

    /// Opens a virtual file in the root, as root.
    pub fn open(&self, at: &str) -> VirtualFile {
        self.open_as(&Caller::root(), at)
    }

    pub fn open_as(&self, caller: &Caller, at: &str) -> VirtualFile {
        let (ino, _) = self.virtual_files.find(self.root, at.as_bytes()).unwrap();
        let flags = if at.ends_with("control") { OFlag::O_RDWR } else { OFlag::O_RDONLY };
        self.virtual_files.open(caller, ino, flags).unwrap()
    }

    /// Reads a whole text.
    pub async fn text(&self, at: &str) -> String {
        let bytes = self.open(at).read(0, 1 << 20).await.unwrap();
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    /// Sends a request and waits for the end of the reply.
    pub async fn ask(&self, op: u32, body: &[u8]) -> Reply {
        self.ask_as(&Caller::root(), op, body).await
    }

    pub async fn ask_as(&self, caller: &Caller, op: u32, body: &[u8]) -> Reply {
        let handle = self.open_as(caller, ".control");
        let request = request(op, body);
        handle.write(0, &request).unwrap();
        reply(&handle, request.len() as u64).await
    }
}

fn fresh_name() -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    format!("virtual-files-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
}

/// Encodes a request: an opcode, a length, and the body.
pub fn request(op: u32, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap();
    [&op.to_be_bytes()[..], &length.to_be_bytes(), body].concat()
}

/// A decoded reply.
#[derive(Debug, PartialEq)]
pub struct Reply {
    pub progress: Vec<(u64, u64)>,
    pub end: End,
}

#[derive(Debug, PartialEq)]
pub enum End {
    Errno(u8),
    Data(Value),
}

impl Reply {
    pub fn errno(&self) -> u8 {
        match &self.end {
            End::Errno(errno) => *errno,
            End::Data(data) => panic!("not an errno: {data}"),
        }
    }

    pub fn data(&self) -> &Value {
        match &self.end {
            End::Data(data) => data,
            End::Errno(errno) => panic!("not data: errno {errno}"),
        }
    }

    pub fn last_progress(&self) -> (u64, u64) {
        *self.progress.last().expect("there is no progress")
    }
}

/// Reads a reply to its end, as the tools do: polls until it is complete.
pub async fn reply(handle: &VirtualFile, mut off: u64) -> Reply {
    let mut bytes = Vec::new();
    let read = async {
        loop {
            let more = handle.read(off, 128 << 10).await.unwrap();
            off += more.len() as u64;
            bytes.extend_from_slice(&more);
            if let Some(reply) = parse(&bytes) {
                return reply;
            }
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, read).await.expect("the answer never ends")
}

/// Returns `None` if the reply is incomplete.
fn parse(mut bytes: &[u8]) -> Option<Reply> {
    let mut progress = Vec::new();
    loop {
        match bytes {
            [0xFE, rest @ ..] if rest.len() >= 16 => {
                let number = |at: usize| u64::from_be_bytes(rest[at..at + 8].try_into().unwrap());
                progress.push((number(0), number(8)));
                bytes = &rest[16..];
            }
            [0xFF, a, b, c, d, rest @ ..] => {
                let length = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
                assert!(rest.len() <= length, "there is something behind the data");
                let data = rest.get(..length)?;
                let data = serde_json::from_slice(data).unwrap();
                return Some(Reply { progress, end: End::Data(data) });
            }
            [0xFE | 0xFF, ..] | [] => return None,
            [errno] => return Some(Reply { progress, end: End::Errno(*errno) }),
            other => panic!("not an answer: {other:?}"),
        }
    }
}
