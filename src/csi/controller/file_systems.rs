//! The file systems that the controller knows, and those that it has open.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ring::digest::{SHA256, digest};
use tokio::sync::Mutex;
use tokio::time::Instant;
use tracing::{info, warn};

use super::file_system::FileSystem;
use crate::access::Access;
use crate::csi::deadline::Deadline;
use crate::error::{Error, Result};
use crate::policy::Policy;
use crate::sync;

/// A file system that has not been used for this long is closed.
const IDLE_TIMEOUT: Duration = Duration::from_mins(5);
/// How long opening may take, formatting included, even after its caller has given up.
const OPEN_TIMEOUT: Duration = Duration::from_mins(1);

/// The keys and values of a Secret.
pub type SecretMap = BTreeMap<String, String>;

/// All file systems that were named by a Secret. Clones share them.
#[derive(Clone, Default)]
pub struct FileSystems {
    slots: Arc<sync::Mutex<HashMap<String, Arc<Slot>>>>,
    /// Directory of Secrets whose file systems are opened at the start.
    secrets_dir: Option<PathBuf>,
    closing: Arc<AtomicBool>,
    policy: Arc<Policy>,
}

/// One file system, open or not.
struct Slot {
    id: String,
    /// Held while the file system is opened, so that concurrent callers wait instead of opening it
    /// again.
    open: Arc<Mutex<Option<Open>>>,
    secret: sync::Mutex<SecretMap>,
    used: sync::Mutex<Instant>,
}

struct Open {
    file_system: Arc<FileSystem>,
    /// Of the Secret that it was opened with.
    digest: [u8; 32],
}

impl FileSystems {
    pub fn new(secrets_dir: Option<PathBuf>, policy: Arc<Policy>) -> Self {
        Self { secrets_dir, policy, ..Self::default() }
    }

    /// Opens the file system that a Secret names. Does not wait for other file systems.
    pub async fn open(
        &self,
        secret: &HashMap<String, String>,
        deadline: Deadline,
    ) -> Result<Arc<FileSystem>> {
        let secret = secret.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
        self.open_known(secret, deadline).await
    }

    /// Opens a known file system.
    pub async fn open_known(
        &self,
        secret: SecretMap,
        deadline: Deadline,
    ) -> Result<Arc<FileSystem>> {
        if self.closing.load(Ordering::Acquire) {
            return Err(Error::Interrupted);
        }
        let access = Arc::new(Access::from_secret(&secret, &self.policy)?);
        let place = access.masked_address();
        let slot = self.slot(access.id());
        *slot.used.lock() = Instant::now();
        let opening = tokio::spawn(async move { slot.open(access, secret).await });
        // Less than the call's deadline, so that the caller gets this error with its cause.
        let patience = deadline.remaining().mul_f64(0.9);
        if let Ok(opened) = tokio::time::timeout(patience, opening).await {
            return opened
                .unwrap_or_else(|lost| Err(Error::lost_task("opening a file system", &lost)));
        }
        let cause = "not opened within the deadline of the call".to_owned();
        Err(Error::Unreachable { place, cause })
    }

    /// Returns the Secrets of all known file systems, by file-system id: those named by a call
    /// since the start, and those in the directory of Secrets.
    pub async fn known(&self) -> BTreeMap<String, SecretMap> {
        let mut known = BTreeMap::new();
        if let Some(dir) = self.secrets_dir.clone() {
            let read = tokio::task::spawn_blocking(move || secrets_in(&dir)).await;
            for secret in read.unwrap_or_default() {
                match Access::from_secret(&secret, &self.policy) {
                    Ok(access) => {
                        known.insert(access.id(), secret);
                    }
                    Err(error) => warn!(%error, "ignoring an invalid Secret in --secrets-dir"),
                }
            }
        }
        for slot in self.slots.lock().values() {
            let secret = slot.secret.lock().clone();
            if !secret.is_empty() {
                known.insert(slot.id.clone(), secret);
            }
        }
        known
    }

    /// Opens the file systems of the directory of Secrets, so that interrupted deletions continue.
    pub async fn open_secrets_dir(&self) {
        if self.secrets_dir.is_none() {
            return;
        }
        for secret in self.known().await.into_values() {
            if let Err(error) = self.open_known(secret, Deadline::within(OPEN_TIMEOUT)).await {
                warn!(%error, "cannot open a file system of --secrets-dir");
            }
        }
    }

    /// Closes idle file systems, forever.
    pub async fn close_idle_forever(self) {
        loop {
            tokio::time::sleep(IDLE_TIMEOUT / 5).await;
            let slots: Vec<Arc<Slot>> = self.slots.lock().values().cloned().collect();
            for slot in slots {
                slot.close_idle().await;
            }
        }
    }

    /// Closes all file systems, waiting at most `patience`.
    pub async fn close(&self, patience: Duration) {
        self.closing.store(true, Ordering::Release);
        let slots: Vec<Arc<Slot>> = self.slots.lock().drain().map(|(_, slot)| slot).collect();
        let closing = slots.iter().map(|slot| async {
            if let Some(open) = slot.open.lock().await.take() {
                open.file_system.close().await;
            }
        });
        if tokio::time::timeout(patience, futures::future::join_all(closing)).await.is_err() {
            warn!("some file systems could not be closed in time");
        }
    }

    fn slot(&self, id: String) -> Arc<Slot> {
        let mut slots = self.slots.lock();
        let slot = slots.entry(id.clone()).or_insert_with(|| {
            let (open, secret) = (Arc::default(), sync::Mutex::default());
            Arc::new(Slot { id, open, secret, used: sync::Mutex::new(Instant::now()) })
        });
        Arc::clone(slot)
    }
}

impl Slot {
    /// Opens the file system, unless it is open with the same content of the Secret.
    async fn open(
        self: Arc<Self>,
        access: Arc<Access>,
        secret: SecretMap,
    ) -> Result<Arc<FileSystem>> {
        let digest = digest_of(&secret);
        let mut open = self.open.lock().await;
        if let Some(open) = open.as_ref().filter(|open| open.digest == digest) {
            return Ok(Arc::clone(&open.file_system));
        }
        let opening = FileSystem::open(Arc::clone(&access));
        let Ok(opened) = tokio::time::timeout(OPEN_TIMEOUT, opening).await else {
            let cause = format!("not opened within {OPEN_TIMEOUT:?}");
            return Err(Error::Unreachable { place: access.masked_address(), cause });
        };
        let file_system = opened?;
        *self.secret.lock() = secret;
        if let Some(old) = open.replace(Open { file_system: Arc::clone(&file_system), digest }) {
            info!(file_system = access.name(), "reopened: its Secret has changed");
            // Calls that still use the old client finish first.
            tokio::spawn(async move {
                while Arc::strong_count(&old.file_system) > 1 {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                old.file_system.close().await;
            });
        }
        Ok(file_system)
    }

    async fn close_idle(&self) {
        if self.used.lock().elapsed() < IDLE_TIMEOUT {
            return;
        }
        let Ok(mut open) = self.open.try_lock() else { return };
        if open.as_ref().is_some_and(|open| Arc::strong_count(&open.file_system) == 1)
            && let Some(open) = open.take()
        {
            open.file_system.close().await;
        }
    }
}

/// A digest that tells whether the content of a Secret has changed, without keeping the content.
fn digest_of(secret: &SecretMap) -> [u8; 32] {
    let text = serde_json::to_vec(secret).unwrap_or_default();
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest(&SHA256, &text).as_ref());
    bytes
}

/// Reads Secrets as Kubernetes mounts them: one directory for each, one file for each key.
fn secrets_in(dir: &std::path::Path) -> Vec<SecretMap> {
    let Ok(dirs) = std::fs::read_dir(dir) else { return Vec::new() };
    let mut secrets = Vec::new();
    for dir in dirs.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()) {
        let Ok(files) = std::fs::read_dir(&dir) else { continue };
        let mut secret = SecretMap::new();
        for file in files.flatten() {
            // Kubelet replaces all files at once by means of entries that begin with two dots.
            let name = file.file_name().to_string_lossy().into_owned();
            if name.starts_with("..") {
                continue;
            }
            if let Ok(text) = std::fs::read_to_string(file.path()) {
                secret.insert(name, text);
            }
        }
        if !secret.is_empty() {
            secrets.push(secret);
        }
    }
    secrets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_directories_of_files() {
        let folder = tempfile::tempdir().unwrap();
        let secret = folder.path().join("one");
        std::fs::create_dir_all(secret.join("..data")).unwrap();
        std::fs::write(secret.join("name"), "vol").unwrap();
        std::fs::write(secret.join("metaurl"), "host\n").unwrap();
        std::fs::write(folder.path().join("stray"), "x").unwrap();
        let found = secrets_in(folder.path());
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].keys().collect::<Vec<_>>(), ["metaurl", "name"]);
        assert!(secrets_in(&folder.path().join("nowhere")).is_empty());
    }

    #[tokio::test]
    async fn a_changed_secret_reopens_and_an_invalid_one_keeps_the_open_file_system() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("memkv://file-systems-{}", uuid::Uuid::new_v4());
        let mut secret: HashMap<String, String> = [
            ("name", "vol"),
            ("metaurl", &url),
            ("storage", "file"),
            ("bucket", folder.path().to_str().unwrap()),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
        let (file_systems, soon) =
            (FileSystems::default(), Deadline::within(Duration::from_secs(20)));
        let first = file_systems.open(&secret, soon).await.unwrap();
        assert!(Arc::ptr_eq(&first, &file_systems.open(&secret, soon).await.unwrap()));
        secret.insert("bucket".to_owned(), "/dev/null/nothing".to_owned());
        secret.insert("access-key".to_owned(), "other".to_owned());
        secret.insert("storage".to_owned(), "colour".to_owned());
        let second = file_systems.open(&secret, soon).await;
        assert!(second.is_ok(), "the stored bucket is used to test keys: {:?}", second.err());
        assert!(!Arc::ptr_eq(&first, &second.unwrap()));
        secret.insert("colour".to_owned(), "red".to_owned());
        assert!(file_systems.open(&secret, soon).await.is_err());
        assert_eq!(file_systems.known().await.len(), 1);
    }
}
