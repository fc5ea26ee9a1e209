//! The file systems that the controller knows, and those it has open.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ring::digest::{SHA256, digest};
use tokio::sync::Mutex;
use tokio::time::Instant;
use tracing::{info, warn};

use super::system::System;
use crate::csi::deadline::Deadline;
use crate::error::{Error, Result};
use crate::mounts::access::Access;
use crate::policy::Policy;
use crate::sync;

/// What is not used for so long is closed.
const IDLE: Duration = Duration::from_mins(5);
/// How long opening may take in all, whoever still waits for it. Formatting is part of it.
const OPENING: Duration = Duration::from_mins(1);

/// What a Secret says, as it was given.
type Given = BTreeMap<String, String>;

#[derive(Clone, Default)]
pub struct Fleet {
    berths: Arc<sync::Mutex<HashMap<String, Arc<Berth>>>>,
    /// Secrets of file systems that are looked after from the start.
    secrets: Option<PathBuf>,
    closing: Arc<AtomicBool>,
    policy: Arc<Policy>,
}

/// The place of one file system, open or not.
struct Berth {
    id: String,
    /// Held while it is opened, so that others wait for it and do not open it again.
    open: Arc<Mutex<Option<Open>>>,
    given: sync::Mutex<Given>,
    used: sync::Mutex<Instant>,
}

struct Open {
    system: Arc<System>,
    mark: [u8; 32],
}

impl Fleet {
    pub fn new(secrets: Option<PathBuf>, policy: Arc<Policy>) -> Self {
        Self { secrets, policy, ..Self::default() }
    }

    /// The file system of a Secret, open. Other file systems are not waited for.
    pub async fn open(
        &self,
        secret: &HashMap<String, String>,
        deadline: Deadline,
    ) -> Result<Arc<System>> {
        let given: Given = secret.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
        self.open_given(given, deadline).await
    }

    async fn open_given(&self, given: Given, deadline: Deadline) -> Result<Arc<System>> {
        if self.closing.load(Ordering::Acquire) {
            return Err(Error::Interrupted);
        }
        let access = Arc::new(Access::from_secret(&given, &self.policy)?);
        let place = access.place();
        let berth = self.berth(access.id());
        *berth.used.lock() = Instant::now();
        let opening = tokio::spawn(async move { berth.open(access, given).await });
        // A little before the call itself is given up, so that its answer has the cause.
        let patience = deadline.left().mul_f64(0.9);
        if let Ok(opened) = tokio::time::timeout(patience, opening).await {
            return opened
                .unwrap_or_else(|lost| Err(Error::lost_task("opening a file system", &lost)));
        }
        let cause = "it cannot be opened within the deadline of the call".to_owned();
        Err(Error::Unreachable { place, cause })
    }

    /// Everything that is known: what was asked for since the start, and what the directory of
    /// Secrets has. By their ids.
    pub async fn known(&self) -> BTreeMap<String, BTreeMap<String, String>> {
        let mut known = BTreeMap::new();
        if let Some(dir) = self.secrets.clone() {
            let read = tokio::task::spawn_blocking(move || secrets_in(&dir)).await;
            for given in read.unwrap_or_default() {
                match Access::from_secret(&given, &self.policy) {
                    Ok(access) => {
                        known.insert(access.id(), given);
                    }
                    Err(error) => warn!(%error, "a Secret of --secrets-dir is of no use"),
                }
            }
        }
        for berth in self.berths.lock().values() {
            let given = berth.given.lock().clone();
            if !given.is_empty() {
                known.insert(berth.id.clone(), given);
            }
        }
        known
    }

    /// A file system that is known.
    pub async fn open_known(&self, given: Given, deadline: Deadline) -> Result<Arc<System>> {
        self.open_given(given, deadline).await
    }

    /// Opens what the directory of Secrets has, so that removals go on where they were left off.
    pub async fn begin(&self) {
        if self.secrets.is_none() {
            return;
        }
        for given in self.known().await.into_values() {
            if let Err(error) = self.open_given(given, Deadline::within(OPENING)).await {
                warn!(%error, "a file system of --secrets-dir cannot be opened");
            }
        }
    }

    /// Closes what nobody uses, from time to time.
    pub async fn tend(self) {
        loop {
            tokio::time::sleep(IDLE / 5).await;
            let berths: Vec<Arc<Berth>> = self.berths.lock().values().cloned().collect();
            for berth in berths {
                berth.close_idle().await;
            }
        }
    }

    /// Closes everything, within `patience`.
    pub async fn close(&self, patience: Duration) {
        self.closing.store(true, Ordering::Release);
        let berths: Vec<Arc<Berth>> = self.berths.lock().drain().map(|(_, berth)| berth).collect();
        let closing = berths.iter().map(|berth| async {
            if let Some(open) = berth.open.lock().await.take() {
                open.system.close().await;
            }
        });
        if tokio::time::timeout(patience, futures::future::join_all(closing)).await.is_err() {
            warn!("not every file system could be closed in time");
        }
    }

    fn berth(&self, id: String) -> Arc<Berth> {
        let mut berths = self.berths.lock();
        let berth = berths.entry(id.clone()).or_insert_with(|| {
            let (open, given) = (Arc::default(), sync::Mutex::default());
            Arc::new(Berth { id, open, given, used: sync::Mutex::new(Instant::now()) })
        });
        Arc::clone(berth)
    }
}

impl Berth {
    /// Opens it, unless it is open with what the Secret says now.
    async fn open(self: Arc<Self>, access: Arc<Access>, given: Given) -> Result<Arc<System>> {
        let mark = mark(&given);
        let mut open = self.open.lock().await;
        if let Some(open) = open.as_ref().filter(|open| open.mark == mark) {
            return Ok(Arc::clone(&open.system));
        }
        let opening = System::open(Arc::clone(&access));
        let Ok(opened) = tokio::time::timeout(OPENING, opening).await else {
            let cause = format!("it cannot be opened within {OPENING:?}");
            return Err(Error::Unreachable { place: access.place(), cause });
        };
        let system = opened?;
        *self.given.lock() = given;
        if let Some(old) = open.replace(Open { system: Arc::clone(&system), mark }) {
            info!(volume = access.name(), "the Secret has changed");
            // Calls that still use it come to their end first.
            tokio::spawn(async move {
                while Arc::strong_count(&old.system) > 1 {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                old.system.close().await;
            });
        }
        Ok(system)
    }

    async fn close_idle(&self) {
        if self.used.lock().elapsed() < IDLE {
            return;
        }
        let Ok(mut open) = self.open.try_lock() else { return };
        if open.as_ref().is_some_and(|open| Arc::strong_count(&open.system) == 1)
            && let Some(open) = open.take()
        {
            open.system.close().await;
        }
    }
}

/// What tells the content of one Secret from that of another, without keeping it.
fn mark(given: &Given) -> [u8; 32] {
    let text = serde_json::to_vec(given).unwrap_or_default();
    let mut mark = [0; 32];
    mark.copy_from_slice(digest(&SHA256, &text).as_ref());
    mark
}

/// Secrets as Kubernetes mounts them: a directory each, a file for each key.
fn secrets_in(dir: &std::path::Path) -> Vec<Given> {
    let Ok(dirs) = std::fs::read_dir(dir) else { return Vec::new() };
    let mut secrets = Vec::new();
    for dir in dirs.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()) {
        let Ok(files) = std::fs::read_dir(&dir) else { continue };
        let mut given = Given::new();
        for file in files.flatten() {
            // Names with two dots are how kubelet exchanges all files at once.
            let name = file.file_name().to_string_lossy().into_owned();
            if name.starts_with("..") {
                continue;
            }
            if let Ok(text) = std::fs::read_to_string(file.path()) {
                given.insert(name, text);
            }
        }
        if !given.is_empty() {
            secrets.push(given);
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
    async fn a_changed_secret_opens_anew_and_a_wrong_one_leaves_what_is_open() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("memkv://fleet-{}", uuid::Uuid::new_v4());
        let mut secret: HashMap<String, String> = [
            ("name", "vol"),
            ("metaurl", &url),
            ("storage", "file"),
            ("bucket", folder.path().to_str().unwrap()),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
        let (fleet, soon) = (Fleet::default(), Deadline::within(Duration::from_secs(20)));
        let first = fleet.open(&secret, soon).await.unwrap();
        assert!(Arc::ptr_eq(&first, &fleet.open(&secret, soon).await.unwrap()));
        secret.insert("bucket".to_owned(), "/dev/null/nothing".to_owned());
        secret.insert("access-key".to_owned(), "other".to_owned());
        secret.insert("storage".to_owned(), "colour".to_owned());
        let second = fleet.open(&secret, soon).await;
        assert!(second.is_ok(), "keys are tried where the volume is: {:?}", second.err());
        assert!(!Arc::ptr_eq(&first, &second.unwrap()));
        secret.insert("colour".to_owned(), "red".to_owned());
        assert!(fleet.open(&secret, soon).await.is_err());
        assert_eq!(fleet.known().await.len(), 1);
    }
}
