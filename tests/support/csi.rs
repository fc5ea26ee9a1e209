//! The CSI driver as a separate process, and a client that calls it over its socket.

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

/// For a program to start or stop on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// A node: a folder, a running driver, and a file system for pods.
pub struct Node {
    folder: TempDir,
    runtime: Runtime,
    driver: Option<Driver>,
    url: String,
    /// The flags that relax the policy.
    allowed: Vec<String>,
    /// Additional environment of the driver.
    pub environment: Vec<(String, String)>,
    /// The cgroup of the driver; without one, it gets a fixed memory budget.
    group: Option<MemoryGroup>,
    /// Whether the driver has its own mount namespace, with the folder as a mount shared by both.
    has_own_namespace: bool,
}

/// The flags that a setup on one host needs.
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
    /// The deadline of the call.
    pub limit: Duration,
}

impl Node {
    /// Uses a new database of the shared Redis server.
    #[track_caller]
    pub fn start() -> Self {
        Self::start_on(&RedisServer::shared().fresh_url())
    }

    /// Starts with only these flags.
    #[track_caller]
    pub fn start_allowing(flags: &[&str]) -> Self {
        Self::start_with(&RedisServer::shared().fresh_url(), flags, None, &[], false)
    }

    #[track_caller]
    pub fn start_on(url: &str) -> Self {
        Self::start_with(url, ONE_HOST, None, &[], false)
    }

    /// Starts in a cgroup with a memory limit, and with the budget that follows from it.
    #[track_caller]
    pub fn start_within(group: MemoryGroup) -> Self {
        Self::start_with(&RedisServer::shared().fresh_url(), ONE_HOST, Some(group), &[], false)
    }

    /// Starts with options of the driver.
    #[track_caller]
    pub fn start_with_options(options: &[&str]) -> Self {
        Self::start_with(&RedisServer::shared().fresh_url(), ONE_HOST, None, options, false)
    }

    /// Starts as in a container: the driver has its own mount namespace, and its mounts are visible
    /// here because the folder is shared between both.
    #[track_caller]
    pub fn start_in_own_namespace() -> Self {
        Self::start_with(&RedisServer::shared().fresh_url(), ONE_HOST, None, &[], true)
    }

    #[track_caller]
    fn start_with(
        url: &str,
        flags: &[&str],
        group: Option<MemoryGroup>,
        options: &[&str],
        has_own_namespace: bool,
    ) -> Self {
        assert!(has_limit(), "a test that mounts runs inside timeout::within");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_owned();
        on_timeout(move || unmount_all(&path));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        fs::create_dir(folder.path().join("pods")).unwrap();
        if has_own_namespace {
            share(folder.path());
        }
        let (url, allowed, environment) = (url.to_owned(), Vec::new(), Vec::new());
        let driver = None;
        let mut node =
            Self { folder, runtime, driver, url, allowed, environment, group, has_own_namespace };
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

    /// Returns the target path for a pod.
    pub fn target(&self, pod: &str) -> PathBuf {
        self.path("pods").join(pod)
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Sets the flags for the next start.
    pub fn allow(&mut self, flags: &[&str]) {
        self.allowed = flags.iter().map(|flag| (*flag).to_owned()).collect();
    }

    /// Starts the driver, which must not be running.
    #[track_caller]
    pub fn restart(&mut self, options: &[&str]) {
        assert!(self.driver.is_none(), "the driver is running");
        let log = fs::OpenOptions::new().create(true).append(true).open(self.path("log")).unwrap();
        let socket = self.path("csi.sock");
        let program = env!("CARGO_BIN_EXE_jfs-csi");
        let mut command = match &self.group {
            Some(group) => group.command(program),
            None if self.has_own_namespace => {
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

    /// Starts another driver beside the running one, which it replaces. Returns the process of the one
    /// before.
    #[track_caller]
    pub fn surge(&mut self, options: &[&str]) -> Child {
        let old = self.driver.take().expect("the driver is running");
        self.restart(options);
        old.process
    }

    pub fn is_ready(&self) -> bool {
        let mut identity = IdentityClient::new(self.channel());
        let response = self.runtime.block_on(identity.probe(ProbeRequest {}));
        response.is_ok_and(|response| response.into_inner().ready == Some(true))
    }

    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }

    pub fn channel(&self) -> Channel {
        self.driver.as_ref().expect("the driver is running").channel.clone()
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

    /// Returns the address of `/metrics` or `/healthz`, from the driver's log.
    #[track_caller]
    pub fn address(&self, page: &str) -> SocketAddr {
        let log = self.log();
        let place = log.lines().rev().find_map(|line| {
            let (_, place) = line.split_once("serving http://")?;
            place.trim().strip_suffix(page)
        });
        place.unwrap_or_else(|| panic!("{page} is not served:\n{log}")).parse().unwrap()
    }

    pub fn pid(&self) -> u32 {
        self.driver.as_ref().expect("the driver is running").process.id()
    }

    /// Stops the driver, and returns whether it ended successfully.
    #[track_caller]
    pub fn stop(&mut self) -> bool {
        let mut driver = self.driver.take().expect("the driver is running");
        let pid = Pid::from_raw(driver.process.id().try_into().unwrap());
        kill(pid, Signal::SIGTERM).unwrap();
        let ended = wait(&mut driver.process, PATIENCE);
        let Some(status) = ended else {
            kill_group(&mut driver.process);
            panic!("the driver does not stop:\n{}", self.log());
        };
        status.success()
    }

    /// Kills the driver, as a crash would.
    pub fn kill(&mut self) {
        let mut driver = self.driver.take().expect("the driver is running");
        kill_group(&mut driver.process);
    }

    /// Returns the Secret of this node's file system.
    pub fn secrets(&self) -> HashMap<String, String> {
        let bucket = self.path("bucket").display().to_string();
        [("name", "vol"), ("metaurl", &self.url), ("storage", "file"), ("bucket", &bucket)]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into()
    }

    /// Returns the request to publish a volume for a pod.
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
        let response = self.runtime.block_on(node.node_get_volume_stats(request));
        response.map(tonic::Response::into_inner)
    }

    /// Returns the condition of a volume: whether it is abnormal, and the message.
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

/// Returns the capability for a mount with this access mode.
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
        unmount_all(self.folder.path());
    }
}

/// Makes a folder a mount that propagates to other mount namespaces.
#[track_caller]
fn share(folder: &Path) {
    let none: Option<&Path> = None;
    mount(Some(folder), folder, none, MsFlags::MS_BIND, none).unwrap();
    // Private first, so that it leaves its present peer group.
    for flags in [MsFlags::MS_PRIVATE, MsFlags::MS_SHARED] {
        mount(none, folder, none, flags, none).unwrap();
    }
}

/// Returns all mount points below a folder.
pub fn mounts_below(folder: &Path) -> Vec<PathBuf> {
    jfs::fuse::mounts_below(folder)
}

/// Unmounts everything below a folder, and the folder itself.
fn unmount_all(folder: &Path) {
    for point in mounts_below(folder) {
        let _ = jfs::fuse::unmount(&point, jfs::fuse::Unmount::Force);
    }
    // It is a mount only if the driver has its own namespace.
    let _ = umount2(folder, MntFlags::MNT_DETACH);
}
