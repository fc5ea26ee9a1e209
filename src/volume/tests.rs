use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nix::fcntl::OFlag;
use tempfile::TempDir;
use uuid::Uuid;

use super::*;
use crate::chunk::{Cache, CacheOptions, Options, Writeback};
use crate::meta::record::Slice;
use crate::meta::{Caller, Ino, Name, Registration, Timestamp};
use crate::object::ObjectStore;
use crate::object::mem::MemStore;
use crate::slice::SliceSize;

const BLOCK: u32 = 64 << 10;

/// A volume for one test, in stores of its own.
struct Scene {
    volume: Arc<Volume>,
    bucket: Arc<MemStore>,
    url: String,
    _folder: TempDir,
}

/// A name that no other test has.
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

impl Scene {
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

    /// Writes some bytes of a file as one slice.
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

    /// The first chunk of a file, as long as there are slices.
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

/// A file of many overlapping slices and a hole, and what it holds.
async fn patchwork(scene: &Scene, ino: Ino) -> Vec<u8> {
    let mut content = vec![0; 5 * BLOCK as usize];
    for (n, (off, len)) in
        (1_u8..).zip([(100, 2 * BLOCK), (BLOCK, 10), (7, 300), (4 * BLOCK, BLOCK), (BLOCK + 3, 4)])
    {
        let bytes: Vec<u8> = (0..len).map(|at| n ^ (at >> 3).to_le_bytes()[0]).collect();
        content[off as usize..][..len as usize].copy_from_slice(&bytes);
        scene.write(ino, off, &bytes).await;
    }
    content
}

async fn compaction_keeps_the_content(url: &str) {
    let scene = Scene::new(url, VolumeOptions::default()).await;
    let ino = scene.file("file").await;
    // Not read before: reading so many slices compacts them in the background.
    let content = patchwork(&scene, ino).await;
    let before = scene.objects().await;
    assert!(scene.volume.meta().compact(ino, 0, true).await.unwrap());
    scene.volume.meta().idle().await;
    let parts = scene.volume.meta().read(ino, 0).await.unwrap();
    let (holes, data): (Vec<&Slice>, Vec<&Slice>) =
        parts.iter().partition(|part| part.id.is_hole());
    assert!(data.iter().all(|part| part.id == data[0].id), "one slice: {data:?}");
    assert!(!holes.is_empty(), "what was a hole stays one");
    assert!(scene.read(ino).await == content);
    let after = scene.objects().await;
    assert!(after.iter().all(|key| !before.contains(key)), "{after:?}");

    scene.unlink("file").await;
    assert_eq!(scene.objects().await, Vec::<String>::new());
    scene.volume.close(false).await.unwrap();
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
async fn a_compaction_that_meets_a_missing_block_changes_nothing() {
    let scene = Scene::in_memory(VolumeOptions::default()).await;
    let ino = scene.file("file").await;
    patchwork(&scene, ino).await;
    let lost = scene.objects().await.remove(0);
    scene.bucket.delete(&lost).await.unwrap();
    let before = (scene.objects().await, scene.volume.meta().read(ino, 0).await.unwrap());
    let error = scene.volume.meta().compact(ino, 0, true).await.unwrap_err();
    assert!(matches!(error, Error::MissingBlock { .. }), "{error}");
    scene.volume.meta().idle().await;
    let after = (scene.objects().await, scene.volume.meta().read(ino, 0).await.unwrap());
    assert_eq!(before, after);
}

#[tokio::test]
async fn a_changed_bucket_is_taken_up_without_reopening() {
    let scene = Scene::in_memory(VolumeOptions::default()).await;
    let ino = scene.file("file").await;
    scene.write(ino, 0, b"old").await;
    let other = fresh("bucket");
    let admin = Meta::connect(&scene.url, crate::meta::Options::default()).await.unwrap();
    let setting = (*scene.volume.meta().context().setting()).clone();
    let setting = Setting { bucket: format!("mem://{other}"), ..setting };
    admin.init(setting, false).await.unwrap();
    scene.volume.meta().reload().await.unwrap();
    let new = MemStore::named(&other);
    let patience = tokio::time::Instant::now() + Duration::from_secs(20);
    loop {
        scene.write(ino, 0, b"new").await;
        if !new.list("", "", 1).await.unwrap().is_empty() {
            break;
        }
        assert!(tokio::time::Instant::now() < patience, "still in the old bucket");
        tokio::task::yield_now().await;
    }
    assert_eq!(scene.read(ino).await, b"new");
}

#[tokio::test]
async fn a_bucket_that_cannot_be_opened_leaves_the_old_one_in_use() {
    let scene = Scene::in_memory(VolumeOptions::default()).await;
    let (sender, changes) = watch::channel(Arc::new(Setting::default()));
    let live = Arc::new(ReplaceableStore::new(scene.bucket.clone()));
    let following = tokio::spawn(follow(changes, live.clone(), Overrides::default()));
    let setting = (*scene.volume.meta().context().setting()).clone();
    sender.send(Arc::new(Setting { storage: "nothing".to_owned(), ..setting })).unwrap();
    drop(sender);
    following.await.unwrap();
    assert_eq!(live.place(), scene.bucket.place());
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
        let scene = Scene::in_memory(options).await;
        let ino = scene.file("file").await;
        scene.write(ino, 0, b"some bytes").await;
        assert_eq!(scene.objects().await.len(), 0);
        assert_eq!(scene.read(ino).await, b"some bytes");
        scene.volume.close(flush).await.unwrap();
        assert_eq!(scene.objects().await.len(), usize::from(flush));
    }
}

#[tokio::test]
async fn a_removed_file_that_was_open_is_left_to_the_next_client() {
    let scene = Scene::in_memory(VolumeOptions::default()).await;
    let ino = scene.file("file").await;
    scene.write(ino, 0, b"some bytes").await;
    scene.volume.meta().open_file(&Caller::root(), ino, OFlag::O_RDONLY).await.unwrap();
    scene.unlink("file").await;
    assert_eq!(scene.read(ino).await, b"some bytes");
    scene.volume.close(false).await.unwrap();

    let next = Volume::open(connect(&scene.url).await, VolumeOptions::default()).await.unwrap();
    let day_after = Timestamp::now().sec + 86_400;
    assert_eq!(next.meta().clean_deleted_files(day_after).await.unwrap(), 1);
    assert_eq!(scene.objects().await, Vec::<String>::new());
    next.close(false).await.unwrap();
}

#[tokio::test]
async fn a_volume_shows_what_it_counts() {
    let registry = Registry::new_custom(Some("juicefs".to_owned()), None).unwrap();
    let options = VolumeOptions { registry: registry.clone(), ..VolumeOptions::default() };
    let scene = Scene::in_memory(options).await;
    let ino = scene.file("file").await;
    scene.write(ino, 0, b"some bytes").await;
    let names: Vec<_> = registry.gather().iter().map(|one| one.name().to_owned()).collect();
    for name in ["juicefs_object_request_data_bytes", "juicefs_used_buffer_size_bytes"] {
        assert!(names.iter().any(|one| one == name), "{name}: {names:?}");
    }
}

#[test]
fn a_setting_without_sense_is_refused_by_what_is_wrong() {
    let setting = Setting { block_size: 0, ..Setting::default() };
    assert!(layout(&setting).unwrap_err().to_string().contains("block size"));
    let setting = Setting { compression: "rar".to_owned(), ..Setting::default() };
    assert!(compression(&setting).unwrap_err().to_string().contains("rar"));
}
