use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nix::fcntl::OFlag;
use tempfile::TempDir;
use uuid::Uuid;

use super::*;
use crate::chunk::{Cache, CacheOptions, Options, Writeback};
use crate::meta::{Caller, Ino, Name, Registration, Timestamp};
use crate::object::ObjectStore;
use crate::object::mem::MemStore;

const BLOCK: u32 = 64 << 10;

/// A volume for one test, in its own stores.
struct Fixture {
    volume: Arc<Volume>,
    bucket: Arc<MemStore>,
    url: String,
    _folder: TempDir,
}

/// Returns a name that no other test uses.
fn fresh(what: &str) -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    format!("{what}-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
}

async fn connect(url: &str) -> Arc<Meta> {
    let options = crate::meta::Options { no_background_jobs: true, ..Default::default() };
    let meta = Meta::connect(url, options).await.unwrap();
    meta.start(Registration::New).await.unwrap();
    meta
}

impl Fixture {
    async fn new(url: &str, options: VolumeOptions) -> Self {
        let (folder, name) = (tempfile::tempdir().unwrap(), fresh("bucket"));
        let url = url.replace("FOLDER", folder.path().to_str().unwrap());
        let setting = Setting {
            storage: "mem".to_owned(),
            bucket: format!("mem://{name}"),
            block_size: i64::from(BLOCK >> 10),
            trash_days: 0,
            ..Setting::new("vol", Uuid::new_v4()).unwrap()
        };
        let meta = Meta::attach(&url, crate::meta::Options::default()).await.unwrap();
        meta.init(setting, false).await.unwrap();
        meta.close().await.unwrap();
        let volume = Volume::open(connect(&url).await, options).await.unwrap();
        Self { volume, bucket: MemStore::named(&name), url, _folder: folder }
    }

    async fn in_memory(options: VolumeOptions) -> Self {
        Self::new(&format!("memkv://{}", fresh("volume")), options).await
    }

    async fn file(&self, name: &str) -> Ino {
        let (caller, name) = (Caller::root(), Name::new(name.as_bytes()).unwrap());
        let meta = self.volume.meta();
        let (ino, _) = meta.create(&caller, Ino::ROOT, &name, 0o644, 0, true).await.unwrap();
        meta.close_file(ino).await.unwrap();
        ino
    }

    async fn unlink(&self, name: &str) {
        let (caller, name) = (Caller::root(), Name::new(name.as_bytes()).unwrap());
        self.volume.meta().unlink(&caller, Ino::ROOT, &name).await.unwrap();
        self.volume.meta().idle().await;
    }

    /// Writes bytes to a file as one slice.
    async fn write(&self, ino: Ino, off: u32, bytes: &[u8]) {
        let (meta, store) = (self.volume.meta(), self.volume.store());
        let id = meta.new_slice().await.unwrap();
        let mut upload = store.upload(id, 0);
        for (index, block) in (0..).zip(bytes.chunks(BLOCK as usize)) {
            upload.put(index, bytes::Bytes::copy_from_slice(block), None);
        }
        upload.finish().await.unwrap();
        let len = u32::try_from(bytes.len()).unwrap();
        let slice = Slice { pos: 0, id, size: len, off: 0, len };
        meta.write(ino, 0, off, slice, Timestamp::now()).await.unwrap();
    }

    /// Reads the first chunk of a file, as far as there are slices.
    async fn read(&self, ino: Ino) -> Vec<u8> {
        let mut content = Vec::new();
        for part in self.volume.meta().read(ino, 0).await.unwrap().iter() {
            let slice = SliceSize { id: part.id, size: part.size };
            if part.id.is_hole() {
                content.resize(content.len() + part.len as usize, 0);
                continue;
            }
            let range = part.off..part.off + part.len;
            content.extend(self.volume.store().read(slice, range).await.unwrap().concat());
        }
        content
    }

    async fn objects(&self) -> Vec<String> {
        let all = self.bucket.list("vol/chunks/", "", 1000).await.unwrap();
        all.into_iter().map(|object| object.key).collect()
    }
}

/// Writes a file of many overlapping slices and a hole, and returns its content.
async fn patchwork(fixture: &Fixture, ino: Ino) -> Vec<u8> {
    let mut content = vec![0; 5 * BLOCK as usize];
    for (n, (off, len)) in
        (1_u8..).zip([(100, 2 * BLOCK), (BLOCK, 10), (7, 300), (4 * BLOCK, BLOCK), (BLOCK + 3, 4)])
    {
        let bytes: Vec<u8> = (0..len).map(|at| n ^ (at >> 3).to_le_bytes()[0]).collect();
        content[off as usize..][..len as usize].copy_from_slice(&bytes);
        fixture.write(ino, off, &bytes).await;
    }
    content
}

async fn compaction_keeps_the_content(url: &str) {
    let fixture = Fixture::new(url, VolumeOptions::default()).await;
    let ino = fixture.file("file").await;
    // Not read before: reading so many slices compacts them in the background.
    let content = patchwork(&fixture, ino).await;
    let before = fixture.objects().await;
    assert!(fixture.volume.meta().compact(ino, 0, true).await.unwrap());
    fixture.volume.meta().idle().await;
    let parts = fixture.volume.meta().read(ino, 0).await.unwrap();
    let (holes, data): (Vec<&Slice>, Vec<&Slice>) =
        parts.iter().partition(|part| part.id.is_hole());
    assert!(data.iter().all(|part| part.id == data[0].id), "one slice: {data:?}");
    assert!(!holes.is_empty(), "what was a hole stays one");
    assert!(fixture.read(ino).await == content);
    let after = fixture.objects().await;
    assert!(after.iter().all(|key| !before.contains(key)), "{after:?}");

    fixture.unlink("file").await;
    assert_eq!(fixture.objects().await, Vec::<String>::new());
    fixture.volume.close(false).await.unwrap();
}

#[tokio::test]
async fn compaction_keeps_the_content_in_memory() {
    compaction_keeps_the_content(&format!("memkv://{}", fresh("volume"))).await;
}

#[tokio::test]
async fn compaction_keeps_the_content_in_sqlite() {
    compaction_keeps_the_content("sqlite3://FOLDER/meta.db").await;
}

#[tokio::test]
async fn a_compaction_that_misses_a_block_changes_nothing() {
    let fixture = Fixture::in_memory(VolumeOptions::default()).await;
    let ino = fixture.file("file").await;
    patchwork(&fixture, ino).await;
    let lost = fixture.objects().await.remove(0);
    fixture.bucket.delete(&lost).await.unwrap();
    let before = (fixture.objects().await, fixture.volume.meta().read(ino, 0).await.unwrap());
    let error = fixture.volume.meta().compact(ino, 0, true).await.unwrap_err();
    assert!(matches!(error, Error::MissingBlock { .. }), "{error}");
    fixture.volume.meta().idle().await;
    let after = (fixture.objects().await, fixture.volume.meta().read(ino, 0).await.unwrap());
    assert_eq!(before, after);
}

#[tokio::test]
async fn a_changed_bucket_is_used_without_reopening() {
    let fixture = Fixture::in_memory(VolumeOptions::default()).await;
    let ino = fixture.file("file").await;
    fixture.write(ino, 0, b"old").await;
    let other = fresh("bucket");
    let admin = Meta::connect(&fixture.url, crate::meta::Options::default()).await.unwrap();
    let setting = (*fixture.volume.meta().context().setting()).clone();
    let setting = Setting { bucket: format!("mem://{other}"), ..setting };
    admin.init(setting, false).await.unwrap();
    fixture.volume.meta().reload().await.unwrap();
    let new = MemStore::named(&other);
    let patience = tokio::time::Instant::now() + Duration::from_secs(20);
    loop {
        fixture.write(ino, 0, b"new").await;
        if !new.list("", "", 1).await.unwrap().is_empty() {
            break;
        }
        assert!(tokio::time::Instant::now() < patience, "still in the old bucket");
        tokio::task::yield_now().await;
    }
    assert_eq!(fixture.read(ino).await, b"new");
}

#[tokio::test]
async fn a_bucket_that_cannot_be_opened_leaves_the_old_one_in_use() {
    let fixture = Fixture::in_memory(VolumeOptions::default()).await;
    let (sender, changes) = watch::channel(Arc::new(Setting::default()));
    let live = Arc::new(ReplaceableStore::new(fixture.bucket.clone()));
    let following = tokio::spawn(follow_setting(changes, live.clone(), Overrides::default()));
    let setting = (*fixture.volume.meta().context().setting()).clone();
    sender.send(Arc::new(Setting { storage: "nothing".to_owned(), ..setting })).unwrap();
    drop(sender);
    following.await.unwrap();
    assert_eq!(live.place(), fixture.bucket.place());
}

#[tokio::test]
async fn closing_with_a_flush_leaves_nothing_staged() {
    for flush in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let dirs = vec![folder.path().to_owned()];
        let cache = CacheOptions { dirs, free_ratio: 0.0, ..CacheOptions::default() };
        let writeback = Writeback { delay: Duration::from_hours(1), ..Writeback::default() };
        let options = VolumeOptions {
            cache: Some(Cache::open(cache).await.unwrap()),
            data: Options { writeback: Some(writeback), ..Options::default() },
            ..VolumeOptions::default()
        };
        let fixture = Fixture::in_memory(options).await;
        let ino = fixture.file("file").await;
        fixture.write(ino, 0, b"some bytes").await;
        assert_eq!(fixture.objects().await.len(), 0);
        assert_eq!(fixture.read(ino).await, b"some bytes");
        fixture.volume.close(flush).await.unwrap();
        assert_eq!(fixture.objects().await.len(), usize::from(flush));
    }
}

#[tokio::test]
async fn a_removed_file_that_was_open_is_left_to_the_next_client() {
    let fixture = Fixture::in_memory(VolumeOptions::default()).await;
    let ino = fixture.file("file").await;
    fixture.write(ino, 0, b"some bytes").await;
    fixture.volume.meta().open_file(&Caller::root(), ino, OFlag::O_RDONLY).await.unwrap();
    fixture.unlink("file").await;
    assert_eq!(fixture.read(ino).await, b"some bytes");
    fixture.volume.close(false).await.unwrap();

    let next = Volume::open(connect(&fixture.url).await, VolumeOptions::default()).await.unwrap();
    let day_after = Timestamp::now().sec + 86_400;
    assert_eq!(next.meta().clean_deleted_files(day_after).await.unwrap(), 1);
    assert_eq!(fixture.objects().await, Vec::<String>::new());
    next.close(false).await.unwrap();
}

#[tokio::test]
async fn a_volume_registers_its_metrics() {
    let registry = Registry::new_custom(Some("juicefs".to_owned()), None).unwrap();
    let options = VolumeOptions { registry: registry.clone(), ..VolumeOptions::default() };
    let fixture = Fixture::in_memory(options).await;
    let ino = fixture.file("file").await;
    fixture.write(ino, 0, b"some bytes").await;
    let names: Vec<_> = registry.gather().iter().map(|one| one.name().to_owned()).collect();
    for name in ["juicefs_object_request_data_bytes", "juicefs_used_buffer_size_bytes"] {
        assert!(names.iter().any(|one| one == name), "{name}: {names:?}");
    }
}

#[test]
fn an_invalid_setting_is_refused_with_the_reason() {
    let setting = Setting { block_size: 0, ..Setting::default() };
    assert!(layout(&setting).unwrap_err().to_string().contains("block size"));
    let setting = Setting { compression: "rar".to_owned(), ..Setting::default() };
    assert!(compression(&setting).unwrap_err().to_string().contains("rar"));
}
