//! The program `jfs-csi`: its options, its services, and its end.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use nix::sys::resource::{Resource, setrlimit};
use prometheus::Registry;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic::transport::Server;
use tracing::{error, info, warn};

use super::controller::Controller;
use super::gate::Gate;
use super::identity::Introduction;
use super::listen::{Socket, endpoint};
use super::node::NodeService;
use super::pages::{self, Registries};
use super::proto::csi::controller_server::ControllerServer;
use super::proto::csi::identity_server::IdentityServer;
use super::proto::csi::node_server::NodeServer;
use super::proto::registration::registration_server::RegistrationServer;
use super::registration::{Refusal, Registrar};
use super::stop::Signals;
use crate::error::{Error, Result};
use crate::log::Log;
use crate::mounts::{Mounts, NodeCache, NodeOptions};
use crate::options::durations::parse_duration;
use crate::options::sizes::parse_mebibytes;
use crate::policy::{Flags, Policy};
use crate::vfs::Visibility;

/// Which services are there.
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
enum Level {
    Trace,
    Debug,
    Info,
    Warn,
    Error,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Style {
    Text,
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum VirtualFiles {
    Own,
    None,
    All,
}

/// A CSI driver for JuiceFS volumes: every volume is a FUSE session in this process.
#[derive(Debug, Parser)]
#[command(name = "jfs-csi", version, max_term_width = 100)]
pub struct Settings {
    /// Where the driver listens
    #[arg(long, env = "CSI_ENDPOINT", default_value = "unix:///csi/csi.sock")]
    pub endpoint: String,
    /// Name of this node, as Kubernetes has it
    #[arg(long, env = "NODE_NAME", default_value = "")]
    pub nodeid: String,
    /// Which services to offer
    #[arg(long, env = "JFS_CSI_MODE", value_enum, default_value = "all")]
    pub mode: Mode,
    /// Name of the driver, as storage classes and PVs have it
    #[arg(long, env = "DRIVER_NAME", default_value = "csi.juicefs.com")]
    pub driver_name: String,
    /// Where it is noted what is published on this node
    #[arg(long, env = "JFS_CSI_STATE_DIR", default_value = "/var/lib/jfs-csi")]
    pub state_dir: PathBuf,
    /// Directory of kubelet: volumes are published only below it
    #[arg(
        long,
        env = "JFS_CSI_KUBELET_DIR",
        value_name = "DIR",
        default_value = "/var/lib/kubelet"
    )]
    pub kubelet_dir: PathBuf,
    /// Path of the driver's socket as kubelet sees it; with it, the driver registers itself
    #[arg(long, env = "KUBELET_REGISTRATION_PATH", value_name = "PATH")]
    pub kubelet_registration_path: Option<PathBuf>,
    /// Where kubelet looks for plugins
    #[arg(long, env = "PLUGIN_REGISTRY_DIR", default_value = "/registration")]
    pub plugin_registry_dir: PathBuf,
    /// Address of /metrics, which names all volumes of the node
    #[arg(long, env = "JFS_CSI_HTTP", value_name = "ADDRESS", default_value = "0.0.0.0:9567")]
    pub http: SocketAddr,
    /// Address of /healthz and /readyz, for kubelet
    #[arg(long, env = "JFS_CSI_HEALTH", value_name = "ADDRESS", default_value = "0.0.0.0:9568")]
    pub health: SocketAddr,
    /// Memory for data of all volumes, in MiB unless it says otherwise; by default a part of the
    /// limit of the container
    #[arg(long, env = "JFS_CSI_MEMORY_BUDGET", value_parser = parse_mebibytes)]
    pub memory_budget: Option<u64>,
    /// Volumes at the same time; by default as many as fit into the memory of the container
    #[arg(long, env = "JFS_CSI_MAX_VOLUMES", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_volumes: Option<u64>,
    /// Which virtual files (.control, .stats, .config, .accesslog) volumes have: those that show nothing
    /// but the volume itself, none, or those of JuiceFS, which name the bucket and what others use
    #[arg(long, env = "JFS_CSI_VIRTUAL_FILES", value_enum, default_value = "own")]
    pub virtual_files: VirtualFiles,
    /// Directories of the block cache
    #[arg(long, env = "JFS_CSI_CACHE_DIR", default_value = "/var/jfsCache")]
    pub cache_dir: String,
    /// Take over cache directories that name no owner, such as those of mount pods, with all that lies in
    /// them. Whoever publishes a volume with their UUID first gets them: only for nodes with one tenant
    #[arg(long, env = "JFS_CSI_TAKE_OVER_CACHE")]
    pub take_over_cache: bool,
    /// How the block cache is kept, as a list of mount options: cache-size, cache-items, cache-mode,
    /// cache-eviction, cache-expire, cache-scan-interval, free-space-ratio, max-stage-write,
    /// verify-cache-checksum
    #[arg(long, env = "JFS_CSI_CACHE_OPTIONS", value_name = "LIST", default_value = "")]
    pub cache_options: String,
    /// How long the end of the program waits for calls and for data to be stored
    #[arg(long, env = "JFS_CSI_DRAIN_TIMEOUT", default_value = "30s", value_parser = parse_duration)]
    pub drain_timeout: Duration,
    /// Directory of Secrets, one directory each, whose file systems are looked after from the start
    #[arg(long, env = "JFS_CSI_SECRETS_DIR", value_name = "DIR")]
    pub secrets_dir: Option<PathBuf>,
    /// Address of the Kubernetes API, if it is not that of the cluster around
    #[arg(long, env = "JFS_CSI_KUBE_API", value_name = "URL")]
    pub kube_api: Option<String>,
    /// What to log; `JFS_LOG` says it more exactly
    #[arg(long, env = "JFS_CSI_LOG_LEVEL", value_enum, default_value = "info")]
    log_level: Level,
    /// How to log
    #[arg(long, env = "JFS_CSI_LOG_FORMAT", value_enum, default_value = "text")]
    log_format: Style,
    #[command(flatten)]
    pub allowed: Flags,
}

/// The program, with its arguments read.
pub struct Program {
    settings: Settings,
}

impl Program {
    /// Answers how the program ends, if that is all there was to do.
    pub fn begin() -> Result<Self, ExitCode> {
        let settings = Settings::try_parse().map_err(|error| {
            let _ = error.print();
            ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(1))
        })?;
        settings.log().start();
        keep_no_core();
        Ok(Self { settings })
    }

    /// Serves until a signal asks for the end.
    pub async fn run(self) -> ExitCode {
        match self.serve().await {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                error!("{error}");
                ExitCode::FAILURE
            }
        }
    }

    async fn serve(self) -> Result<()> {
        let Self { settings } = self;
        settings.check()?;
        let mut signals = Signals::listen()?;
        let socket = Socket::listen(&endpoint(&settings.endpoint)?)?;
        let (gate, refusal) = (Gate::default(), Refusal::default());
        let policy = Policy::new(settings.allowed.clone())?;
        let mounts = settings.mounts()?;
        let registry = Registry::new();
        let counted = mounts.clone();
        let registries: Registries = Arc::new(move || {
            let mut all = vec![registry.clone()];
            all.extend(counted.iter().flat_map(|mounts| mounts.registries()));
            all
        });
        let _probes = pages::serve_probes(settings.health, gate.clone(), refusal.clone()).await?;
        let _metrics = pages::serve_metrics(settings.http, registries).await?;
        let introduction = Introduction {
            driver: settings.driver_name.clone(),
            mode: settings.mode,
            gate: gate.clone(),
        };
        let mut routes = Routes::new(IdentityServer::new(introduction));
        if let Some(mounts) = &mounts {
            let (name, policy) = (settings.nodeid.clone(), Arc::clone(&policy));
            let node = NodeService::new(name, Arc::clone(mounts), gate.clone(), policy);
            routes = routes.add_service(NodeServer::new(node));
        }
        let controller = settings.mode.has_controller().then(|| {
            let (secrets, kube) = (settings.secrets_dir.clone(), settings.kube_api.as_deref());
            Controller::new(gate.clone(), secrets, kube, Arc::clone(&policy))
        });
        if let Some(controller) = controller.clone() {
            routes = routes.add_service(ControllerServer::new(controller.clone()));
            tokio::spawn(async move { controller.begin().await });
        }

        let stop = CancellationToken::new();
        let serving = serve(socket, routes, gate.clone(), stop.clone());
        let registering = settings
            .registrar(refusal)
            .map(|(registrar, path)| Ok::<_, Error>((Socket::listen(&path)?, registrar)));
        let registering = match registering.transpose()? {
            Some((socket, registrar)) => {
                let routes = Routes::new(RegistrationServer::new(registrar));
                Some(serve(socket, routes, gate.clone(), stop.clone()))
            }
            None => None,
        };
        gate.open();
        info!(driver = settings.driver_name, mode = ?settings.mode, "serving at {}", settings.endpoint);

        let signal = signals.next().await;
        info!("{signal}: stopping");
        let left = tokio::select! {
            left = gate.close(settings.drain_timeout) => left,
            signal = signals.next() => {
                return Err(Error::Refused(format!("{signal} again: ended with calls under way")));
            }
        };
        if left > 0 {
            warn!(calls = left, "calls are still under way at the end");
        }
        if let Some(mounts) = &mounts {
            mounts.drain(settings.drain_timeout).await;
        }
        if let Some(controller) = controller {
            controller.close(settings.drain_timeout).await;
        }
        stop.cancel();
        let mut failed = Ok(());
        for server in [Some(serving), registering].into_iter().flatten() {
            // Connections that stay open after all calls have ended are of no use to anyone.
            if let Ok(Ok(Err(error))) = tokio::time::timeout(CLOSING, server).await {
                failed = Err(Error::BadInput(format!("serving ended badly: {error}")));
            }
        }
        info!("stopped");
        failed
    }
}

/// A process that dies leaves no image of its memory behind: it holds the keys of all tenants.
fn keep_no_core() {
    if let Err(error) = setrlimit(Resource::RLIMIT_CORE, 0, 0) {
        warn!(%error, "core dumps cannot be switched off");
    }
}

/// For connections to be closed, once nothing is under way.
const CLOSING: Duration = Duration::from_secs(2);

type Serving = tokio::task::JoinHandle<Result<(), tonic::transport::Error>>;

fn serve(socket: Socket, routes: Routes, gate: Gate, stop: CancellationToken) -> Serving {
    tokio::spawn(async move {
        let server = Server::builder().layer(gate).add_routes(routes);
        server.serve_with_incoming_shutdown(socket.incoming(), stop.cancelled()).await
    })
}

impl Settings {
    fn check(&self) -> Result<()> {
        if self.mode.has_node() && self.nodeid.is_empty() {
            return Err(Error::bad_input(
                "a node needs a name: --nodeid, or NODE_NAME from the pod's spec.nodeName",
            ));
        }
        if self.driver_name.is_empty() || self.driver_name.contains('/') {
            return Err(Error::bad_input(format!("bad driver name {:?}", self.driver_name)));
        }
        Ok(())
    }

    /// The volumes of this node, if it is one. What an earlier run has left is looked at.
    fn mounts(&self) -> Result<Option<Arc<Mounts>>> {
        if !self.mode.has_node() {
            return Ok(None);
        }
        let options = NodeOptions {
            state_dir: self.state_dir.clone(),
            kubelet_dir: self.kubelet_dir.clone(),
            budget: self.memory_budget,
            max_volumes: self.max_volumes,
            shown: match self.virtual_files {
                VirtualFiles::Own => Visibility::Own,
                VirtualFiles::None => Visibility::Nothing,
                VirtualFiles::All => Visibility::All,
            },
            cache: NodeCache::read(&self.cache_dir, &self.cache_options)?,
            takes_unowned_caches: self.take_over_cache,
        };
        Mounts::open(options).map(Some)
    }

    fn log(&self) -> Log {
        let filter = match self.log_level {
            Level::Trace => "jfs=trace,info",
            Level::Debug => "jfs=debug,info",
            Level::Info => "info",
            Level::Warn => "warn",
            Level::Error => "error",
        };
        let json = self.log_format == Style::Json;
        Log { filter: filter.to_owned(), id: None, color: true, json }
    }

    fn registrar(&self, refusal: Refusal) -> Option<(Registrar, PathBuf)> {
        let path = self.kubelet_registration_path.as_ref().filter(|_| self.mode.has_node())?;
        let registrar = Registrar {
            driver: self.driver_name.clone(),
            endpoint: path.to_string_lossy().into_owned(),
            refusal,
        };
        let socket = registrar.socket(&self.plugin_registry_dir);
        Some((registrar, socket))
    }
}
