//! Starts a driver for one test, and describes its file system.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use jfs::csi::proto::csi::controller_client::ControllerClient;
use jfs::csi::proto::csi::identity_client::IdentityClient;
use jfs::csi::proto::csi::volume_capability::access_mode::Mode;
use jfs::csi::proto::csi::volume_capability::{AccessMode, AccessType, MountVolume};
use jfs::csi::proto::csi::{
    CapacityRange, CreateVolumeRequest, DeleteVolumeRequest, ProbeRequest, Volume, VolumeCapability,
};
use jfs::meta::{Caller, Ino, Meta, Name, Options, Registration};
use tempfile::TempDir;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use crate::support::command;
use crate::support::redis::RedisServer;

pub const MIB: i64 = 1 << 20;
/// A debug build on a busy machine starts well within this time.
const START_LIMIT: Duration = Duration::from_mins(1);
/// The time limit of a call that needs nothing else.
pub const CALL: Duration = Duration::from_secs(30);

/// A file system: a Redis database, and a directory for objects.
pub struct FileSystem {
    pub folder: TempDir,
    pub url: String,
    pub secrets: HashMap<String, String>,
}

impl FileSystem {
    pub fn new() -> Self {
        Self::with(&[])
    }

    pub fn with(more: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = RedisServer::shared().fresh_url();
        let bucket = folder.path().join("objects").display().to_string();
        let plain = [
            ("name", "vol"),
            ("metaurl", &*url),
            ("storage", "file"),
            ("bucket", &*bucket),
            ("trash-days", "0"),
        ];
        let pairs = plain.iter().chain(more);
        let secrets = pairs.map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Self { folder, url, secrets }
    }

    /// Returns another client of the file system.
    pub async fn meta(&self) -> Arc<Meta> {
        let meta = Meta::connect(&self.url, Options::default()).await.unwrap();
        meta.start(Registration::None).await.unwrap();
        meta
    }

    /// Returns the number of objects.
    pub fn objects(&self) -> usize {
        fn count(dir: &Path) -> usize {
            let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
            let entries = entries.flatten().map(|entry| entry.path());
            entries.map(|path| if path.is_dir() { count(&path) } else { 1 }).sum()
        }
        count(&self.folder.path().join("objects/vol/chunks"))
    }

    /// Returns a directory of Secrets that names this file system.
    pub fn secrets_dir(&self) -> PathBuf {
        let dir = self.folder.path().join("secrets");
        let secret = dir.join("one");
        std::fs::create_dir_all(&secret).unwrap();
        for (key, value) in &self.secrets {
            std::fs::write(secret.join(key), value).unwrap();
        }
        dir
    }
}

/// A running driver, killed when it is dropped.
pub struct Driver {
    pub socket: PathBuf,
    child: Child,
    _folder: TempDir,
}

impl Driver {
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// Starts with the flags that a setup on one host needs.
    pub async fn start_with(more: &[&str]) -> Self {
        let open = ["--allow-loopback", "--allow-local-storage=/"];
        Self::start_allowing(&[&open, more].concat()).await
    }

    /// Starts with only these flags.
    pub async fn start_allowing(more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("csi.sock");
        let child = Command::new(env!("CARGO_BIN_EXE_jfs-csi"))
            .arg("--endpoint")
            .arg(format!("unix://{}", socket.display()))
            .args(["--mode", "controller", "--http", "127.0.0.1:0", "--health", "127.0.0.1:0"])
            .args(more)
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let driver = Self { socket, child, _folder: folder };
        let deadline = tokio::time::Instant::now() + START_LIMIT;
        while !driver.is_ready().await {
            assert!(tokio::time::Instant::now() < deadline, "the driver does not start");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        driver
    }

    pub async fn channel(&self) -> Result<Channel, tonic::transport::Error> {
        Endpoint::from_shared(format!("unix://{}", self.socket.display()))?.connect().await
    }

    pub async fn controller(&self) -> ControllerClient<Channel> {
        ControllerClient::new(self.channel().await.unwrap())
    }

    pub async fn is_ready(&self) -> bool {
        let Ok(channel) = self.channel().await else { return false };
        let response = IdentityClient::new(channel).probe(ProbeRequest {}).await;
        response.is_ok_and(|response| response.into_inner().ready == Some(true))
    }

    /// Kills the driver, as a crash would.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Stops the driver, and returns whether it ended successfully.
    pub fn stop(&mut self) -> bool {
        let sent = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        assert!(sent.unwrap().success());
        command::wait(&mut self.child, Duration::from_mins(1)).is_some_and(|end| end.success())
    }

    pub async fn create(&self, request: CreateVolumeRequest) -> Result<Volume, Status> {
        let response = self.controller().await.create_volume(timed(request)).await?;
        Ok(response.into_inner().volume.unwrap())
    }

    pub async fn delete(&self, file_system: &FileSystem, id: &str) -> Result<(), Status> {
        let (volume_id, secrets) = (id.to_owned(), file_system.secrets.clone());
        let request = DeleteVolumeRequest { volume_id, secrets };
        self.controller().await.delete_volume(timed(request)).await.map(drop)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Adds a deadline to a request.
pub fn timed<T>(message: T) -> Request<T> {
    within(message, CALL)
}

pub fn within<T>(message: T, limit: Duration) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(limit);
    request
}

pub fn capability(mode: Mode) -> VolumeCapability {
    VolumeCapability {
        access_mode: Some(AccessMode { mode: mode.into() }),
        access_type: Some(AccessType::Mount(MountVolume::default())),
    }
}

/// Returns the request for a volume of that size.
pub fn volume(file_system: &FileSystem, name: &str, bytes: i64) -> CreateVolumeRequest {
    CreateVolumeRequest {
        name: name.to_owned(),
        capacity_range: Some(CapacityRange { required_bytes: bytes, limit_bytes: 0 }),
        volume_capabilities: vec![capability(Mode::MultiNodeMultiWriter)],
        secrets: file_system.secrets.clone(),
        ..CreateVolumeRequest::default()
    }
}

/// Creates empty files in a directory.
pub async fn fill(meta: &Meta, dir: Ino, count: usize) {
    for number in 0..count {
        let name = Name::new(format!("file-{number}")).unwrap();
        meta.create(&Caller::root(), dir, &name, 0o644, 0, true).await.map(drop).unwrap();
    }
}

pub async fn names(meta: &Meta, path: &str) -> Vec<String> {
    let (ino, _) = meta.resolve(path).await.unwrap();
    let mut names: Vec<String> = meta
        .entries(ino, false)
        .await
        .unwrap()
        .iter()
        .map(|entry| entry.name.to_string())
        .collect();
    names.sort();
    names
}
