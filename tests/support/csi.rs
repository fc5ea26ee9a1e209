//! The CSI driver as a process of its own, and a client that speaks to it over its socket.

use std::collections::HashMap;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use jfs::csi::proto::csi::controller_client::ControllerClient;
use jfs::csi::proto::csi::identity_client::IdentityClient;
use jfs::csi::proto::csi::node_client::NodeClient;
use jfs::csi::proto::csi::volume_capability::access_mode::Mode;
use jfs::csi::proto::csi::volume_capability::{AccessMode, AccessType, MountVolume};
use jfs::csi::proto::csi::{
    NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse, NodePublishVolumeRequest,
    NodeUnpublishVolumeRequest, ProbeRequest, VolumeCapability,
};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use tokio::net::UnixStream;
use tokio::runtime::Runtime;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tower::service_fn;

use crate::support::cgroup::MemoryGroup;
use crate::support::command::{kill_group, poll, wait};
use crate::support::redis::RedisServer;
use crate::support::timeout::{has_limit, on_timeout};

/// For a program to start or to end, on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// A node: a folder for everything, a driver that runs, and a file system that pods use.
pub struct Node {
    folder: TempDir,
    runtime: Runtime,
    driver: Option<Driver>,
    url: String,
    /// What an administrator allows.
    allowed: Vec<String>,
    /// More of the driver's environment.
    pub environment: Vec<(String, String)>,
    /// What the driver runs in; without, it has a budget of its own.
    group: Option<MemoryGroup>,
    /// Whether the driver has a mount namespace of its own, and its folder is one mount in both.
    apart: bool,
}

/// One host is all that there is to most tests.
const ONE_HOST: &[&str] =
    &["--allow-loopback", "--allow-local-storage=/", "--allow-inline-volumes"];

struct Driver {
    process: Child,
    channel: Channel,
}

/// One publication.
#[derive(Clone)]
pub struct Publication {
    pub volume: String,
    pub target: PathBuf,
    pub secrets: HashMap<String, String>,
    pub context: HashMap<String, String>,
    pub flags: Vec<String>,
    pub group: String,
    pub mode: Mode,
    pub read_only: bool,
    /// How long the caller waits.
    pub limit: Duration,
}

impl Node {
    /// With a fresh database of the Redis server that the tests share.
    #[track_caller]
    pub fn start() -> Self {
        Self::start_on(&RedisServer::shared().fresh_url())
    }

    /// As [`Node::start`], with nothing allowed but this.
    #[track_caller]
    pub fn start_allowing(flags: &[&str]) -> Self {
        Self::start_with(&RedisServer::shared().fresh_url(), flags, None, &[], false)
    }

    #[track_caller]
    pub fn start_on(url: &str) -> Self {
        Self::start_with(url, ONE_HOST, None, &[], false)
    }

    /// In a group with a limit of memory, with the budget that follows from it.
    #[track_caller]
    pub fn start_within(group: MemoryGroup) -> Self {
        Self::start_with(&RedisServer::shared().fresh_url(), ONE_HOST, Some(group), &[], false)
    }

    /// With options of the driver.
    #[track_caller]
    pub fn start_so(options: &[&str]) -> Self {
        Self::start_with(&RedisServer::shared().fresh_url(), ONE_HOST, None, options, false)
    }

    /// As in a container: the driver has a mount namespace of its own, and what it mounts is seen here
    /// because the folder is shared between both.
    #[track_caller]
    pub fn start_apart() -> Self {
        Self::start_with(&RedisServer::shared().fresh_url(), ONE_HOST, None, &[], true)
    }

    #[track_caller]
    fn start_with(
        url: &str,
        flags: &[&str],
        group: Option<MemoryGroup>,
        options: &[&str],
        apart: bool,
    ) -> Self {
        assert!(has_limit(), "a test that mounts runs inside timeout::within");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_owned();
        on_timeout(move || clear(&path));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        fs::create_dir(folder.path().join("pods")).unwrap();
        if apart {
            share(folder.path());
        }
        let (url, allowed, environment) = (url.to_owned(), Vec::new(), Vec::new());
        let driver = None;
        let mut node = Self { folder, runtime, driver, url, allowed, environment, group, apart };
        node.allow(flags);
        node.restart(options);
        node
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where kubelet would want a volume for a pod.
    pub fn target(&self, pod: &str) -> PathBuf {
        self.path("pods").join(pod)
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// What is allowed from the next start on.
    pub fn allow(&mut self, flags: &[&str]) {
        self.allowed = flags.iter().map(|flag| (*flag).to_owned()).collect();
    }

    /// Starts the driver, which must not run.
    #[track_caller]
    pub fn restart(&mut self, options: &[&str]) {
        assert!(self.driver.is_none(), "the driver runs");
        let log = fs::OpenOptions::new().create(true).append(true).open(self.path("log")).unwrap();
        let socket = self.path("csi.sock");
        let program = env!("CARGO_BIN_EXE_jfs-csi");
        let mut command = match &self.group {
            Some(group) => group.command(program),
            None if self.apart => {
                let mut command = Command::new("unshare");
                command.args(["--mount", "--propagation", "unchanged", program]);
                command
            }
            None => Command::new(program),
        };
        if self.group.is_none() {
            command.args(["--memory-budget", "128"]);
        }
        command
            .args(["--endpoint", &format!("unix://{}", socket.display()), "--nodeid", "node-1"])
            .args(["--http", "127.0.0.1:0", "--health", "127.0.0.1:0", "--drain-timeout", "20s"])
            .arg("--state-dir")
            .arg(self.path("state"))
            .arg("--kubelet-dir")
            .arg(self.path("pods"))
            .arg("--cache-dir")
            .arg(self.path("cache"))
            .args(&self.allowed)
            .args(options)
            .env("AWS_EC2_METADATA_DISABLED", "true")
            .envs(self.environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .process_group(0);
        let process = command.spawn().unwrap();
        let channel = {
            let _within = self.runtime.enter();
            let connect = service_fn(move |_| {
                let socket = socket.clone();
                async move { UnixStream::connect(socket).await.map(TokioIo::new) }
            });
            Endpoint::from_static("http://socket").connect_with_connector_lazy(connect)
        };
        self.driver = Some(Driver { process, channel });
        assert!(poll(PATIENCE, || self.is_ready()), "the driver does not start:\n{}", self.log());
    }

    pub fn is_ready(&self) -> bool {
        let mut identity = IdentityClient::new(self.channel());
        let asked = self.runtime.block_on(identity.probe(ProbeRequest {}));
        asked.is_ok_and(|answer| answer.into_inner().ready == Some(true))
    }

    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }

    pub fn channel(&self) -> Channel {
        self.driver.as_ref().expect("the driver runs").channel.clone()
    }

    pub fn node(&self) -> NodeClient<Channel> {
        NodeClient::new(self.channel())
    }

    pub fn controller(&self) -> ControllerClient<Channel> {
        ControllerClient::new(self.channel())
    }

    pub fn group(&self) -> Option<&MemoryGroup> {
        self.group.as_ref()
    }

    /// Where the driver serves a page, from its log: `/metrics` or `/healthz`.
    #[track_caller]
    pub fn address(&self, page: &str) -> SocketAddr {
        let log = self.log();
        let place = log.lines().rev().find_map(|line| {
            let (_, place) = line.split_once("served at http://")?;
            place.trim().strip_suffix(page)
        });
        place.unwrap_or_else(|| panic!("{page} is not served:\n{log}")).parse().unwrap()
    }

    pub fn pid(&self) -> u32 {
        self.driver.as_ref().expect("the driver runs").process.id()
    }

    /// Ends the driver in good order; whether it says that all went well.
    #[track_caller]
    pub fn stop(&mut self) -> bool {
        let mut driver = self.driver.take().expect("the driver runs");
        let pid = Pid::from_raw(driver.process.id().try_into().unwrap());
        kill(pid, Signal::SIGTERM).unwrap();
        let ended = wait(&mut driver.process, PATIENCE);
        let Some(status) = ended else {
            kill_group(&mut driver.process);
            panic!("the driver does not end:\n{}", self.log());
        };
        status.success()
    }

    /// As a crash would end it.
    pub fn kill(&mut self) {
        let mut driver = self.driver.take().expect("the driver runs");
        kill_group(&mut driver.process);
    }

    /// How the file system of this node is reached.
    pub fn secrets(&self) -> HashMap<String, String> {
        let bucket = self.path("bucket").display().to_string();
        [("name", "vol"), ("metaurl", &self.url), ("storage", "file"), ("bucket", &bucket)]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into()
    }

    /// A volume for a pod.
    pub fn publication(&self, volume: &str, pod: &str) -> Publication {
        Publication {
            volume: volume.to_owned(),
            target: self.target(pod),
            secrets: self.secrets(),
            context: HashMap::from([("subPath".to_owned(), volume.to_owned())]),
            flags: Vec::new(),
            group: String::new(),
            mode: Mode::MultiNodeMultiWriter,
            read_only: false,
            limit: PATIENCE,
        }
    }

    pub fn publish(&self, publication: &Publication) -> Result<(), Status> {
        let mut node = self.node();
        self.runtime.block_on(node.node_publish_volume(publication.request())).map(drop)
    }

    pub fn unpublish(&self, volume: &str, target: &Path) -> Result<(), Status> {
        let request = NodeUnpublishVolumeRequest {
            volume_id: volume.to_owned(),
            target_path: target.display().to_string(),
        };
        let mut node = self.node();
        self.runtime.block_on(node.node_unpublish_volume(request)).map(drop)
    }

    pub fn stats(&self, volume: &str, target: &Path) -> Result<NodeGetVolumeStatsResponse, Status> {
        let request = NodeGetVolumeStatsRequest {
            volume_id: volume.to_owned(),
            volume_path: target.display().to_string(),
            staging_target_path: String::new(),
        };
        let mut node = self.node();
        let answer = self.runtime.block_on(node.node_get_volume_stats(request));
        answer.map(tonic::Response::into_inner)
    }

    /// What the driver says of a volume: whether something is wrong, and what.
    #[track_caller]
    pub fn condition(&self, volume: &str, target: &Path) -> (bool, String) {
        let condition = self.stats(volume, target).unwrap().volume_condition.unwrap();
        (condition.abnormal, condition.message)
    }
}

impl Publication {
    pub fn request(&self) -> Request<NodePublishVolumeRequest> {
        let mut request = Request::new(NodePublishVolumeRequest {
            volume_id: self.volume.clone(),
            target_path: self.target.display().to_string(),
            volume_capability: Some(capability(self.mode, &self.flags, &self.group)),
            readonly: self.read_only,
            secrets: self.secrets.clone(),
            volume_context: self.context.clone(),
            ..NodePublishVolumeRequest::default()
        });
        request.set_timeout(self.limit);
        request
    }

    pub fn attribute(mut self, key: &str, value: &str) -> Self {
        self.context.insert(key.to_owned(), value.to_owned());
        self
    }

    pub fn secret(mut self, key: &str, value: &str) -> Self {
        self.secrets.insert(key.to_owned(), value.to_owned());
        self
    }
}

/// A file system, in this mode.
pub fn capability(mode: Mode, flags: &[String], group: &str) -> VolumeCapability {
    let mount = MountVolume {
        fs_type: String::new(),
        mount_flags: flags.to_vec(),
        volume_mount_group: group.to_owned(),
    };
    VolumeCapability {
        access_type: Some(AccessType::Mount(mount)),
        access_mode: Some(AccessMode { mode: mode.into() }),
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(mut driver) = self.driver.take() {
            kill_group(&mut driver.process);
        }
        clear(self.folder.path());
    }
}

/// Makes a folder a mount whose copies in other mount namespaces follow it.
#[track_caller]
fn share(folder: &Path) {
    let none: Option<&Path> = None;
    mount(Some(folder), folder, none, MsFlags::MS_BIND, none).unwrap();
    // One that is in nobody's group first.
    for flags in [MsFlags::MS_PRIVATE, MsFlags::MS_SHARED] {
        mount(none, folder, none, flags, none).unwrap();
    }
}

/// Where something is mounted below a folder.
pub fn mounts_below(folder: &Path) -> Vec<PathBuf> {
    jfs::fuse::mounts_below(folder)
}

fn clear(folder: &Path) {
    for point in mounts_below(folder) {
        let _ = jfs::fuse::unmount(&point, jfs::fuse::Unmount::Force);
    }
    // It is a mount itself, or is not.
    let _ = umount2(folder, MntFlags::MNT_DETACH);
}
