//! Files read and written by our client.

use std::sync::Arc;

use jfs::meta::chunk_range::MAX_FILE_LENGTH;
use jfs::meta::{Caller, Ino, Meta, Name, Options, Registration};
use jfs::vfs::{Content, ContentOptions};
use jfs::volume::{Volume, VolumeOptions};
use nix::fcntl::{FallocateFlags, OFlag};

use super::edits::{Case, Edit};

const PUNCH: FallocateFlags =
    FallocateFlags::FALLOC_FL_KEEP_SIZE.union(FallocateFlags::FALLOC_FL_PUNCH_HOLE);

/// Bytes of one read, as the kernel requests them.
const REQUEST: u32 = 1 << 20;

/// A session of ours on a volume.
pub struct OurClient {
    meta: Arc<Meta>,
    volume: Arc<Volume>,
    content: Arc<Content>,
}

impl OurClient {
    pub async fn open(url: &str) -> Self {
        let options = Options { no_background_jobs: true, ..Options::default() };
        let meta = Meta::connect(url, options).await.unwrap();
        meta.start(Registration::New).await.unwrap();
        let volume = Volume::open(Arc::clone(&meta), VolumeOptions::default()).await.unwrap();
        let store = Arc::clone(volume.store());
        let content = Content::new(Arc::clone(&meta), store, ContentOptions::default());
        Self { meta, volume, content }
    }

    /// Applies the edits of a case to a new file.
    pub async fn write_file(&self, name: &str, case: &Case) {
        let root = Caller::root();
        let name = Name::new(name).unwrap();
        let made = self.meta.create(&root, Ino::ROOT, &name, 0o644, 0, true).await;
        let (ino, attr) = made.unwrap();
        let reader = self.content.reader(ino, &attr);
        for (index, edit) in case.edits.iter().enumerate() {
            match *edit {
                Edit::Write { at, .. } => {
                    self.content.write(ino, at, &case.bytes(index)).await.unwrap();
                }
                Edit::Resize(length) => {
                    self.content.truncate(&root, ino, length, true).await.unwrap();
                }
                Edit::Punch { at, len } => {
                    self.content.fallocate(&root, ino, PUNCH, at, len).await.unwrap();
                }
                Edit::Sync => self.content.flush(ino).await.unwrap(),
            }
        }
        self.content.flush(ino).await.unwrap();
        drop(reader);
        self.meta.close_file(ino).await.unwrap();
    }

    /// Reads a whole file.
    pub async fn read(&self, name: &str) -> Vec<u8> {
        let root = Caller::root();
        let name = Name::new(name).unwrap();
        let (ino, _) = self.meta.lookup(&root, Ino::ROOT, &name).await.unwrap();
        let (_, reader) = self.content.open(&root, ino, OFlag::O_RDONLY).await.unwrap();
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < MAX_FILE_LENGTH {
            let pieces = reader.read(bytes.len() as u64, REQUEST).await.unwrap();
            if pieces.is_empty() {
                break;
            }
            for piece in pieces {
                bytes.extend_from_slice(&piece);
            }
        }
        drop(reader);
        self.meta.close_file(ino).await.unwrap();
        bytes
    }

    /// Removes a file and its data.
    pub async fn remove(&self, name: &str) {
        self.meta.unlink(&Caller::root(), Ino::ROOT, &Name::new(name).unwrap()).await.unwrap();
    }

    /// Waits until this client has nothing left to delete or compact.
    pub async fn idle(&self) {
        self.meta.idle().await;
    }

    pub async fn close(self) {
        self.content.close().await.unwrap();
        self.volume.close(true).await.unwrap();
    }
}
