//! Mounting a volume by its options, serving it, and unmounting it.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, anyhow};
use hyper::Method;
use prometheus::Registry;
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};

use super::keeper::{self, Keeper};
use super::positional::Positional;
use super::signals::{SignalAction, Signals};
use super::{Mount, embedded_volume, mount_point, process_metrics, sd_notify};
use crate::chunk::{Budget, Cache};
use crate::cli::exit::Exit;
use crate::cli::meta_url::{self, MetaUrl};
use crate::cli::relaunch::Parent;
use crate::fuse::{SessionEnd, SessionOptions};
use crate::ledger::Ledger;
use crate::meta::{Ino, Meta, Registration};
use crate::metrics_http::{self, ConnectionLimits};
use crate::object;
use crate::vfs::Visibility;
use crate::volume::storage::{Overrides, spec};
use crate::volume::{Backups, KeptSession, MountRequest, Mounted, Volume, VolumeOptions};

/// Memory for handles and virtual files: out of reach for any legitimate use.
const HANDLE_MEMORY: usize = 1 << 30;

/// Memory for a backup of metadata: more than ten million files need.
const BACKUP_MEMORY: usize = 512 << 20;

/// A mounted volume and everything that has to be closed with it.
struct ServedMount {
    mounted: Mounted,
    volume: Arc<Volume>,
    cache: Option<Arc<Cache>>,
    keeper: Option<Keeper>,
    backups: Option<Backups>,
    _metrics_server: Option<AbortOnDropHandle<()>>,
}

/// Why a mount ends.
enum EndReason {
    Signal(&'static str),
    Ended(SessionEnd),
    Lost(crate::Error),
    /// Another process continues with the mount.
    HandedOver,
    /// The program that requested the mount did not wait for it.
    Abandoned,
}

impl Mount {
    /// Mounts, reports to `parent` if there is one, and serves until the volume is unmounted or a
    /// signal stops it.
    pub async fn run(self, parent: &mut Option<Parent>) -> anyhow::Result<()> {
        self.log_warnings()?;
        let mut signals = Signals::listen()?;
        let Positional { meta_url, mount_point: point } = Positional::parse(&self.positional)?;
        let (url, note) = self.volume(meta_url).await?;
        let mut keeper = Keeper::connect()?;
        let kept = keeper.as_ref().map(Keeper::kept).transpose()?.flatten();
        if kept.is_none() {
            let dir = point.clone();
            tokio::task::spawn_blocking(move || mount_point::prepare(&dir)).await??;
        }
        let meta = self.connect(&url, &point).await?;
        // From here on nothing must fail that can be found out before: the old process stops.
        let kept = match &mut keeper {
            Some(keeper) => keeper.own(kept.is_some()).await?,
            None => None,
        };
        let is_adopted = kept.is_some();
        let served = tokio::select! {
            served = self.start(&meta, &point, keeper, kept) => served,
            signal = signals.next_stop() => Err(anyhow!("received {signal} before the volume was mounted")),
        };
        let served = match served {
            Ok(served) => served,
            Err(error) => {
                // Do not leave the session behind, unless the next process needs it.
                let closed = if is_adopted { meta.hand_over().await } else { meta.close().await };
                if let Err(error) = closed {
                    warn!(%error, "cannot close the metadata session");
                }
                return Err(error);
            }
        };
        let name = meta.context().setting().name.clone();
        let ready = format!("volume {name} is mounted at {}{note}", point.display());
        info!("{ready}");
        let reported = report_ready(parent, &ready);
        sd_notify::ready();
        let mut served = served;
        let (reason, flush) = match reported {
            Ok(()) => served.wait(&meta, &mut signals).await,
            Err(error) => {
                warn!("{error:#}");
                (EndReason::Abandoned, false)
            }
        };
        served.end(reason, flush, &mut signals).await
    }

    /// Returns the URL of the volume, and a note for the user if it is the embedded volume, which is
    /// created if it does not exist.
    async fn volume(&self, given: Option<MetaUrl>) -> anyhow::Result<(MetaUrl, String)> {
        if let Some(url) = given {
            return Ok((url, String::new()));
        }
        let dir = meta_url::embedded_folder(self.args.process.data_dir.as_deref())?;
        let url = meta_url::embedded_url(&dir)?;
        let created = embedded_volume::ensure(&dir, &url).await?;
        let note = if created { "; new, in" } else { "; in" };
        Ok((url, format!("{note} {}", dir.display())))
    }

    async fn connect(&self, url: &MetaUrl, point: &Path) -> anyhow::Result<Arc<Meta>> {
        let point = point.to_string_lossy();
        let (deletes, read_only) = (self.args.storage.max_deletes, self.args.is_read_only());
        let options = self.args.meta.options(&self.args.meta_cache, &point, deletes, read_only);
        info!("metadata is in {url}");
        let meta = Meta::connect(url.expose(), options).await;
        meta.with_context(|| format!("cannot open the volume at {url}"))
    }

    async fn start(
        &self,
        meta: &Arc<Meta>,
        point: &Path,
        keeper: Option<Keeper>,
        kept: Option<KeptSession>,
    ) -> anyhow::Result<ServedMount> {
        let root = match &self.args.meta.subdir {
            _ if kept.is_some() => kept.as_ref().map_or(Ino::ROOT, |kept| kept.record.root()),
            Some(subdir) => {
                meta.ensure_dir(subdir).await.with_context(|| format!("--subdir {subdir}"))?
            }
            None => Ino::ROOT,
        };
        let setting = meta.context().setting();
        let shown_point = point.to_string_lossy().into_owned();
        let registry = self.args.metrics.registry(&shown_point, &setting.name)?;
        process_metrics::register(&registry)?;
        let overrides = self.args.storage.overrides(&setting, Overrides::from_environment()?)?;
        if self.args.storage.check_storage {
            check_storage(meta, &overrides).await?;
        }
        let cache = match self.args.cache.cache(&self.args.storage)? {
            Some(options) => Some(Cache::open(options).await?),
            None => None,
        };
        let listener = self.listen_for_metrics().await;
        let registration = match &kept {
            Some(kept) => Registration::Resume(kept.record.sid()),
            None => Registration::New,
        };
        meta.start(registration).await.context("cannot register the session")?;
        let address = listener.as_ref().and_then(|listener| listener.local_addr().ok());
        let config = self.args.config_file(
            meta,
            &shown_point,
            address.map(|address| address.to_string()),
        )?;
        let options = VolumeOptions {
            storage: overrides.clone(),
            data: self.args.cache.data(&self.args.storage, self.args.is_read_only()),
            budget: Budget::new(usize::try_from(self.args.cache.buffer())?),
            cache: cache.clone(),
            cache_owner: None,
            cache_share: None,
            registry: registry.clone(),
            root,
        };
        let volume = Volume::open(Arc::clone(meta), options).await?;
        let ledger = match &kept {
            Some(kept) => Some(kept.take_ledger()?),
            None => keeper.as_ref().map(|_| Ledger::create()).transpose()?,
        };
        let request = MountRequest {
            point: kept.as_ref().map_or(point, |kept| &kept.record.point).to_owned(),
            root,
            vfs: self.args.fuse.vfs(&self.args.meta_cache, self.args.cache.max_readahead),
            mount: self.args.fuse.mount(
                &setting,
                self.args.is_read_only(),
                self.args.process.force,
            ),
            init: self.args.fuse.init_options(&setting),
            session: SessionOptions { ledger, ..SessionOptions::default() },
            memory: Budget::new(HANDLE_MEMORY),
            visibility: Visibility::All,
            config,
            registry: None,
        };
        let is_adopted = kept.is_some();
        let mounted = match kept {
            Some(kept) => adopt(&volume, request, kept).await,
            None => Mounted::start(Arc::clone(&volume), request).await,
        };
        let mounted = match mounted {
            Ok(mounted) => mounted,
            Err(error) => {
                // An error of the cleanup must not hide the error that caused it.
                let closed =
                    if is_adopted { volume.hand_over().await } else { volume.close(false).await };
                if let Err(error) = closed {
                    warn!(%error, "cannot close the volume");
                }
                return Err(error.into());
            }
        };
        let backups = self.args.meta.backups(self.args.is_read_only(), BACKUP_MEMORY);
        let backups = backups
            .map(|options| Backups::start(Arc::clone(meta), overrides, options, &registry))
            .transpose()?;
        let metrics_server = listener.map(|listener| serve_metrics(listener, registry));
        if let Some(keeper) = &keeper {
            keeper.keep(&mounted);
        }
        Ok(ServedMount { mounted, volume, cache, keeper, backups, _metrics_server: metrics_server })
    }

    /// Listens for metrics requests. A failure is only logged: the mount works without metrics.
    async fn listen_for_metrics(&self) -> Option<TcpListener> {
        let listener = match self.args.metrics.address() {
            Ok((address, any_port)) => {
                metrics_http::listen(address, metrics_http::METRICS_PATH, any_port)
                    .await
                    .map_err(Into::into)
            }
            Err(error) => Err(error),
        };
        listener.map_err(|error| warn!("no metrics are served: {error:#}")).ok()
    }
}

/// Reports to the waiting parent, if this process runs in the background.
fn report_ready(parent: &mut Option<Parent>, ready: &str) -> anyhow::Result<()> {
    let Some(parent) = parent.take() else { return Ok(()) };
    // So that the file system of the working directory can be unmounted.
    std::env::set_current_dir("/").context("cannot change to the root directory")?;
    parent.report_ready(ready)
}

impl ServedMount {
    /// Waits until the mount has to end, and returns why, and whether to upload everything before.
    async fn wait(&mut self, meta: &Meta, signals: &mut Signals) -> (EndReason, bool) {
        let mut flush = false;
        let (ended, lost) = (self.mounted.ended(), meta.lost());
        let keeper = &mut self.keeper;
        tokio::pin!(ended, lost);
        loop {
            // Signals first: a flush request precedes the unmount it is for.
            tokio::select! {
                biased;
                action = signals.next_action() => match action {
                    SignalAction::Flush => flush = true,
                    SignalAction::Stop(signal) => return (EndReason::Signal(signal), flush),
                },
                end = &mut ended => return (EndReason::Ended(end), flush),
                error = &mut lost => return (EndReason::Lost(error), flush),
                () = keeper::asked_to_yield(keeper) => return (EndReason::HandedOver, flush),
            }
        }
    }

    /// Unmounts and stores dirty data; a second signal skips the rest.
    async fn end(
        self,
        reason: EndReason,
        flush: bool,
        signals: &mut Signals,
    ) -> anyhow::Result<()> {
        let hands_over = matches!(reason, EndReason::HandedOver);
        if !hands_over {
            sd_notify::stopping();
        }
        match &reason {
            EndReason::Signal(name) => info!("{name}: unmounting"),
            EndReason::Ended(SessionEnd::Unmounted) => info!("unmounted"),
            EndReason::Ended(end) => warn!("the mount ended: {end:?}"),
            EndReason::Lost(error) => {
                warn!(%error, "this client may not use the volume any more: unmounting");
            }
            EndReason::Abandoned => info!("unmounting"),
            EndReason::HandedOver => info!("handing the mount over to another process"),
        }
        drop(self.backups);
        let closing = async {
            let (stored, closed) = if hands_over {
                let stored = self.mounted.hand_over().await;
                (stored, self.volume.hand_over().await)
            } else {
                let stored = self.mounted.close().await;
                (stored, self.volume.close(flush).await)
            };
            if let Some(cache) = self.cache {
                cache.close().await;
            }
            let told = match self.keeper {
                Some(keeper) if hands_over => keeper.hand_over(),
                Some(keeper) => {
                    keeper.end();
                    Ok(())
                }
                None => Ok(()),
            };
            stored.and(closed).and(told)
        };
        tokio::select! {
            closed = closing => {
                closed.context("not everything could be stored").map_err(|e| Exit::Unflushed.with(e))?;
            }
            signal = signals.next_stop() => {
                let error = anyhow!("received {signal} again: exiting before everything was stored");
                return Err(Exit::Unflushed.with(error));
            }
        }
        match reason {
            EndReason::Signal(_)
            | EndReason::Abandoned
            | EndReason::HandedOver
            | EndReason::Ended(SessionEnd::Unmounted | SessionEnd::Stopped) => Ok(()),
            EndReason::Ended(SessionEnd::Aborted) => {
                Err(Exit::Disconnected.with(anyhow!("the connection to the kernel was aborted")))
            }
            EndReason::Ended(SessionEnd::Failed(errno)) => {
                Err(Exit::Disconnected
                    .with(anyhow!("the connection to the kernel failed: {errno}")))
            }
            EndReason::Lost(error) => Err(Exit::Lost.with(error.into())),
        }
    }
}

/// Continues with a mount that another process served.
async fn adopt(
    volume: &Arc<Volume>,
    request: MountRequest,
    kept: KeptSession,
) -> crate::Result<Mounted> {
    let KeptSession { record, device, .. } = kept;
    let mounted = Mounted::adopt(Arc::clone(volume), request, device, record.agreed).await?;
    volume.meta().adopt_removed_files().await?;
    Ok(mounted)
}

fn serve_metrics(listener: TcpListener, registry: Registry) -> AbortOnDropHandle<()> {
    let answer =
        move |method: &Method, path: &str| metrics_http::respond(method, path, &registry.gather());
    AbortOnDropHandle::new(tokio::spawn(metrics_http::serve(
        listener,
        ConnectionLimits::METRICS,
        answer,
    )))
}

/// Tests the object storage (`--check-storage`).
async fn check_storage(meta: &Meta, overrides: &Overrides) -> anyhow::Result<()> {
    let store = object::open(&spec(&meta.context().setting(), overrides)?)?;
    let tested = object::probe(store.as_ref(), 0, true).await;
    tested.with_context(|| format!("storage {} does not work", store.place()))
}
