//! The program `jfs-csi`: starts and stops its services.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use nix::sys::resource::{Resource, setrlimit};
use prometheus::Registry;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic::transport::Server;
use tracing::{error, info, warn};

use super::controller::Controller;
use super::keeper::NodeKeeper;
use super::launcher;
use super::node::{NodeService, from_origin, limits};
use super::proto::csi::controller_server::ControllerServer;
use super::proto::csi::identity_server::IdentityServer;
use super::proto::csi::node_server::NodeServer;
use super::proto::registration::registration_server::RegistrationServer;
use super::server::admission::Admission;
use super::server::http::{self, Registries};
use super::server::identity::IdentityService;
use super::server::registration::RegistrationError;
use super::server::socket::{Socket, parse_endpoint};
use super::settings::Settings;
use crate::error::{Error, Result};
use crate::mounts::Mounts;
use crate::policy::Policy;

/// The program, with parsed arguments.
pub struct Program {
    settings: Settings,
}

impl Program {
    /// Parses the arguments. Returns the exit code if there is nothing else to do, or if a child process
    /// did it.
    pub fn begin() -> Result<Self, ExitCode> {
        let settings = Settings::try_parse().map_err(|error| {
            let _ = error.print();
            ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(1))
        })?;
        settings.log().start();
        disable_core_dumps();
        if settings.restart_after_crash && !launcher::is_launched() {
            return Err(launcher::run());
        }
        Ok(Self { settings })
    }

    /// Serves until a signal stops the program.
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
        let (admission, registration_error) = (Admission::default(), RegistrationError::default());
        let policy = Policy::new(settings.allowed.clone())?;
        let (mut keeper, mounts) = own_mounts(&settings, &policy).await?;
        let socket = Socket::listen(&parse_endpoint(&settings.endpoint)?)?;
        if let Some(mounts) = &mounts {
            adopt(mounts, &policy).await?;
        }
        let registry = Registry::new();
        let mounts_for_metrics = mounts.clone();
        let registries: Registries = Arc::new(move || {
            let mut all = vec![registry.clone()];
            all.extend(mounts_for_metrics.iter().flat_map(|mounts| mounts.registries()));
            all
        });
        let link = keeper.as_ref().map(|keeper| Arc::clone(keeper.link()));
        let refusal = registration_error.clone();
        let _probes = http::serve_probes(settings.health, admission.clone(), refusal, link).await?;
        let _metrics = http::serve_metrics(settings.http, registries).await?;
        let identity = IdentityService {
            driver: settings.driver_name.clone(),
            mode: settings.mode,
            admission: admission.clone(),
        };
        let mut routes = Routes::new(IdentityServer::new(identity));
        if let Some(mounts) = &mounts {
            let (name, policy) = (settings.nodeid.clone(), Arc::clone(&policy));
            let node = NodeService::new(name, Arc::clone(mounts), admission.clone(), policy);
            routes = routes.add_service(NodeServer::new(node));
        }
        let controller = settings.mode.has_controller().then(|| {
            let (secrets, kube) = (settings.secrets_dir.clone(), settings.kube_api.as_deref());
            Controller::new(admission.clone(), secrets, kube, Arc::clone(&policy))
        });
        if let Some(controller) = controller.clone() {
            routes = routes.add_service(ControllerServer::new(controller.clone()));
            tokio::spawn(async move { controller.open_secrets_dir().await });
        }

        let stop = CancellationToken::new();
        let driver = serve(socket, routes, admission.clone(), stop.clone());
        let registration = settings
            .registrar(registration_error)
            // This process serves the mounts: who else registers belongs to the process before.
            .map(|(registrar, path)| Ok::<_, Error>((Socket::replace(&path)?, registrar)));
        let registration = match registration.transpose()? {
            Some((socket, registrar)) => {
                let routes = Routes::new(RegistrationServer::new(registrar));
                Some(serve(socket, routes, admission.clone(), stop.clone()))
            }
            None => None,
        };
        admission.open();
        let Settings { driver_name, mode, endpoint, .. } = &settings;
        info!(driver = driver_name, ?mode, "serving at {endpoint}");

        let is_asked_to_yield = wait_for_stop(&mut signals, keeper.as_mut(), mounts.as_ref()).await;
        let remaining = tokio::select! {
            remaining = admission.drain(settings.drain_timeout) => remaining,
            signal = signals.next() => {
                let text = format!("{signal} again: stopped with calls in progress");
                return Err(Error::Refused(text));
            }
        };
        if remaining > 0 {
            warn!(
                calls = remaining,
                "stopping with calls in progress: they took longer than --drain-timeout"
            );
        }
        let servers = [Some(driver), registration].into_iter().flatten();
        let closed = if is_asked_to_yield {
            // At once: the process that takes over listens at the same paths.
            abort_servers(servers).await;
            Ok(())
        } else {
            stop.cancel();
            close_servers(servers).await
        };
        if let Some(mounts) = &mounts {
            mounts.hand_over(settings.drain_timeout).await;
        }
        if let Some(controller) = controller {
            controller.close(settings.drain_timeout).await;
        }
        info!("stopped");
        if let Some(keeper) = keeper.filter(|_| is_asked_to_yield) {
            tokio::select! {
                _ = signals.next() => {}
                serves_again = keeper.stand_by() => {
                    serves_again?;
                    return Err(run_again());
                }
            }
        }
        closed
    }
}

/// Waits until this process serves the mounts of this node. What the process before serves is
/// checked while it still does: if it cannot be continued, that process goes on.
async fn own_mounts(
    settings: &Settings,
    policy: &Arc<Policy>,
) -> Result<(Option<NodeKeeper>, Option<Arc<Mounts>>)> {
    let mut keeper = match settings.keeper.as_deref().filter(|_| settings.mode.has_node()) {
        Some(socket) => Some(NodeKeeper::connect(socket).await),
        None => None,
    };
    let mounts = settings.mounts(keeper.as_ref().map(|keeper| Arc::clone(keeper.link())))?;
    if let (Some(mounts), Some(keeper)) = (&mounts, &mut keeper) {
        let can_continue = mounts.can_continue(&|origin| from_origin(origin, policy))?;
        if !can_continue {
            warn!("waiting until no other process serves the mounts");
        }
        keeper.own(!can_continue).await?;
    }
    Ok((keeper, mounts))
}

/// Continues with the mounts of the process before.
async fn adopt(mounts: &Mounts, policy: &Arc<Policy>) -> Result<()> {
    for volume in mounts.adopt(&|origin| from_origin(origin, policy)).await? {
        let Some(meta) = mounts.meta(&volume).await else { continue };
        match limits::read(&meta, &volume).await {
            Ok(limits) => mounts.set_limits(&volume, limits).await,
            Err(error) => warn!(%volume, %error, "cannot read its limits"),
        }
    }
    Ok(())
}

/// Waits until the driver has to stop. Returns whether another process is ready to serve.
async fn wait_for_stop(
    signals: &mut Signals,
    keeper: Option<&mut NodeKeeper>,
    mounts: Option<&Arc<Mounts>>,
) -> bool {
    let asked_to_yield = async {
        match (keeper, mounts) {
            (Some(keeper), Some(mounts)) => keeper.asked_to_yield(mounts).await,
            _ => std::future::pending().await,
        }
    };
    tokio::select! {
        signal = signals.next() => {
            info!("{signal}: stopping");
            false
        }
        () = asked_to_yield => {
            info!("another process is ready to serve the mounts: stopping");
            true
        }
    }
}

async fn close_servers(servers: impl Iterator<Item = Serving>) -> Result<()> {
    let mut failed = Ok(());
    for server in servers {
        // Clients may keep connections open after all calls have ended.
        if let Ok(Ok(Err(error))) = tokio::time::timeout(CLOSE_TIMEOUT, server).await {
            failed = Err(Error::BadInput(format!("the gRPC server failed: {error}")));
        }
    }
    failed
}

async fn abort_servers(servers: impl Iterator<Item = Serving>) {
    for server in servers {
        server.abort();
        // It ends as aborted.
        let _ = server.await;
    }
}

/// Replaces this process by a new one of the same program. Returns only on failure.
fn run_again() -> Error {
    use std::os::unix::process::CommandExt;
    let mut words = std::env::args_os();
    let mut command = std::process::Command::new("/proc/self/exe");
    if let Some(name) = words.next() {
        command.arg0(name);
    }
    Error::internal("starting again", command.args(words).exec())
}

/// Disables core dumps: the memory of this process holds the keys of all tenants.
fn disable_core_dumps() {
    if let Err(error) = setrlimit(Resource::RLIMIT_CORE, 0, 0) {
        warn!(%error, "cannot disable core dumps");
    }
}

/// The time to close connections once no call is in progress.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

type Serving = tokio::task::JoinHandle<Result<(), tonic::transport::Error>>;

fn serve(socket: Socket, routes: Routes, admission: Admission, stop: CancellationToken) -> Serving {
    tokio::spawn(async move {
        let server = Server::builder().layer(admission).add_routes(routes);
        server.serve_with_incoming_shutdown(socket.incoming(), stop.cancelled()).await
    })
}

/// Signals that stop the program.
pub(super) struct Signals {
    term: Signal,
    int: Signal,
}

impl Signals {
    pub fn listen() -> Result<Self> {
        let listen = |kind| {
            signal(kind)
                .map_err(|error| Error::bad_input(format!("cannot listen for signals: {error}")))
        };
        Ok(Self { term: listen(SignalKind::terminate())?, int: listen(SignalKind::interrupt())? })
    }

    /// Waits for a signal and returns its name.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.term.recv() => "SIGTERM",
            _ = self.int.recv() => "SIGINT",
        }
    }
}
