//! The command-line options of `jfs-csi`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Parser, ValueEnum};

use super::server::registration::{Registrar, RegistrationError};
use crate::error::{Error, Result};
use crate::log::Log;
use crate::mounts::{KeeperLink, Mounts, NodeCache, NodeOptions};
use crate::options::durations::parse_duration;
use crate::options::sizes::parse_mebibytes;
use crate::policy::Flags;
use crate::vfs::Visibility;

/// The services that the driver offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    All,
    Controller,
    Node,
}

impl Mode {
    pub fn has_controller(self) -> bool {
        self != Self::Node
    }

    pub fn has_node(self) -> bool {
        self != Self::Controller
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LogLevel {
    Trace,
    Debug,
    Info,
    Warn,
    Error,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum VirtualFiles {
    Own,
    None,
    All,
}

/// A CSI driver for JuiceFS. It serves every volume by FUSE within this process.
#[derive(Debug, Parser)]
#[command(name = "jfs-csi", version, max_term_width = 100)]
pub struct Settings {
    /// Socket that the driver listens on
    #[arg(long, env = "CSI_ENDPOINT", default_value = "unix:///csi/csi.sock")]
    pub endpoint: String,
    /// Name of this node in Kubernetes
    #[arg(long, env = "NODE_NAME", default_value = "")]
    pub nodeid: String,
    /// Services to offer
    #[arg(long, env = "JFS_CSI_MODE", value_enum, default_value = "all")]
    pub mode: Mode,
    /// Name of the driver, as storage classes and PVs refer to it
    #[arg(long, env = "DRIVER_NAME", default_value = "csi.juicefs.com")]
    pub driver_name: String,
    /// Directory for the records of what is published on this node
    #[arg(long, env = "JFS_CSI_STATE_DIR", default_value = "/var/lib/jfs-csi")]
    pub state_dir: PathBuf,
    /// Directory of kubelet; volumes are published only below it
    #[arg(
        long,
        env = "JFS_CSI_KUBELET_DIR",
        value_name = "DIR",
        default_value = "/var/lib/kubelet"
    )]
    pub kubelet_dir: PathBuf,
    /// Path of the driver's socket as kubelet sees it; if set, the driver registers itself
    #[arg(long, env = "KUBELET_REGISTRATION_PATH", value_name = "PATH")]
    pub kubelet_registration_path: Option<PathBuf>,
    /// Directory where kubelet looks for plugins
    #[arg(long, env = "PLUGIN_REGISTRY_DIR", default_value = "/registration")]
    pub plugin_registry_dir: PathBuf,
    /// Address of /metrics, which names all volumes of the node
    #[arg(long, env = "JFS_CSI_HTTP", value_name = "ADDRESS", default_value = "0.0.0.0:9567")]
    pub http: SocketAddr,
    /// Address of /healthz and /readyz, for kubelet
    #[arg(long, env = "JFS_CSI_HEALTH", value_name = "ADDRESS", default_value = "0.0.0.0:9568")]
    pub health: SocketAddr,
    /// Memory for the data of all volumes, in MiB unless a unit is given; by default a part of the
    /// memory limit of the container
    #[arg(long, env = "JFS_CSI_MEMORY_BUDGET", value_parser = parse_mebibytes)]
    pub memory_budget: Option<u64>,
    /// Maximum number of volumes; by default as many as fit into the memory of the container
    #[arg(long, env = "JFS_CSI_MAX_VOLUMES", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_volumes: Option<u64>,
    /// Virtual files (.control, .stats, .config, .accesslog) of volumes: those that show only the
    /// volume itself, none, or all of JuiceFS, which also name the bucket and show the activity of
    /// other volumes
    #[arg(long, env = "JFS_CSI_VIRTUAL_FILES", value_enum, default_value = "own")]
    pub virtual_files: VirtualFiles,
    /// Directories of the block cache
    #[arg(long, env = "JFS_CSI_CACHE_DIR", default_value = "/var/jfsCache")]
    pub cache_dir: String,
    /// Take over cache directories without an owner, such as those of mount pods, with their
    /// content. They go to the first published volume with their UUID: only for nodes with one
    /// tenant
    #[arg(long, env = "JFS_CSI_TAKE_OVER_CACHE")]
    pub take_over_cache: bool,
    /// Settings of the block cache, as a list of mount options: cache-size, cache-items,
    /// cache-mode, cache-eviction, cache-expire, cache-scan-interval, free-space-ratio,
    /// max-stage-write, verify-cache-checksum
    #[arg(long, env = "JFS_CSI_CACHE_OPTIONS", value_name = "LIST", default_value = "")]
    pub cache_options: String,
    /// Socket of the keeper of this node, which holds the mounts while the driver is replaced or has
    /// died; without, they end with the driver
    #[arg(long, env = "JFS_CSI_KEEPER", value_name = "SOCKET")]
    pub keeper: Option<PathBuf>,
    /// Start the driver again at once when it crashes, instead of ending the container: kubelet waits
    /// longer after each crash
    #[arg(long, env = "JFS_CSI_RESTART_AFTER_CRASH")]
    pub restart_after_crash: bool,
    /// Time to finish calls and store data before the driver stops
    #[arg(long, env = "JFS_CSI_DRAIN_TIMEOUT", default_value = "30s", value_parser = parse_duration)]
    pub drain_timeout: Duration,
    /// Directory of Secrets, one subdirectory each, whose file systems are opened at the start
    #[arg(long, env = "JFS_CSI_SECRETS_DIR", value_name = "DIR")]
    pub secrets_dir: Option<PathBuf>,
    /// Address of the Kubernetes API, if not that of the surrounding cluster
    #[arg(long, env = "JFS_CSI_KUBE_API", value_name = "URL")]
    pub kube_api: Option<String>,
    /// Log level; `JFS_LOG` sets it for each module
    #[arg(long, env = "JFS_CSI_LOG_LEVEL", value_enum, default_value = "info")]
    log_level: LogLevel,
    /// Log format
    #[arg(long, env = "JFS_CSI_LOG_FORMAT", value_enum, default_value = "text")]
    log_format: LogFormat,
    #[command(flatten)]
    pub allowed: Flags,
}

impl Settings {
    pub(super) fn check(&self) -> Result<()> {
        if self.mode.has_node() && self.nodeid.is_empty() {
            return Err(Error::bad_input(
                "--nodeid is missing: set it, or NODE_NAME from the pod's spec.nodeName",
            ));
        }
        if self.driver_name.is_empty() || self.driver_name.contains('/') {
            return Err(Error::bad_input(format!(
                "--driver-name {:?} is invalid",
                self.driver_name
            )));
        }
        Ok(())
    }

    /// Opens the mounts of this node, if there is a node service, with what an earlier process
    /// published.
    pub(super) fn mounts(&self, keeper: Option<Arc<KeeperLink>>) -> Result<Option<Arc<Mounts>>> {
        if !self.mode.has_node() {
            return Ok(None);
        }
        let options = NodeOptions {
            state_dir: self.state_dir.clone(),
            kubelet_dir: self.kubelet_dir.clone(),
            budget: self.memory_budget,
            max_volumes: self.max_volumes,
            visibility: match self.virtual_files {
                VirtualFiles::Own => Visibility::Own,
                VirtualFiles::None => Visibility::Nothing,
                VirtualFiles::All => Visibility::All,
            },
            cache: NodeCache::read(&self.cache_dir, &self.cache_options)?,
            takes_unowned_caches: self.take_over_cache,
        };
        Mounts::open(options, keeper).map(Some)
    }

    pub(super) fn log(&self) -> Log {
        let filter = match self.log_level {
            LogLevel::Trace => "jfs=trace,info",
            LogLevel::Debug => "jfs=debug,info",
            LogLevel::Info => "info",
            LogLevel::Warn => "warn",
            LogLevel::Error => "error",
        };
        let json = self.log_format == LogFormat::Json;
        Log { filter: filter.to_owned(), id: None, color: true, json }
    }

    pub(super) fn registrar(
        &self,
        registration_error: RegistrationError,
    ) -> Option<(Registrar, PathBuf)> {
        let path = self.kubelet_registration_path.as_ref().filter(|_| self.mode.has_node())?;
        let registrar = Registrar {
            driver: self.driver_name.clone(),
            endpoint: path.to_string_lossy().into_owned(),
            registration_error,
        };
        let socket = registrar.socket(&self.plugin_registry_dir);
        Some((registrar, socket))
    }
}
