//! From options to a mount, and to its end.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, anyhow};
use hyper::Method;
use prometheus::Registry;
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};

use super::places::{Address, Places};
use super::stop::{Asked, Signals};
use super::{Mount, embedded, point, service, usage};
use crate::chunk::{Budget, Cache};
use crate::cli::exit::Exit;
use crate::cli::launch::Caller;
use crate::fuse::{SessionEnd, SessionOptions};
use crate::meta::{Ino, Meta, Registration};
use crate::object;
use crate::scrape::{self, Bounds};
use crate::vfs::Visibility;
use crate::volume::storage::{Overrides, spec};
use crate::volume::{MountRequest, Mounted, Volume, VolumeOptions};

/// For open files and virtual files: more than anybody has open who does not mean harm.
const TABLES: usize = 1 << 30;

/// A volume that is mounted, and what goes with it.
struct Served {
    mounted: Mounted,
    volume: Arc<Volume>,
    cache: Option<Arc<Cache>>,
    _scrapes: Option<AbortOnDropHandle<()>>,
}

/// Why a mount is over.
enum Why {
    Signal(&'static str),
    Ended(SessionEnd),
    Lost(crate::Error),
    /// Whoever asked for it did not wait.
    Unwanted,
}

impl Mount {
    /// Mounts, tells `caller` if there is one, and serves until the mount is gone or a signal asks
    /// for its end.
    pub async fn run(self, caller: &mut Option<Caller>) -> anyhow::Result<()> {
        self.warn()?;
        let mut signals = Signals::listen()?;
        let Places { meta, point } = Places::parse(&self.places)?;
        let (address, note) = self.volume(meta).await?;
        let place = point.clone();
        tokio::task::spawn_blocking(move || point::prepare(&place)).await??;
        let meta = self.connect(&address, &point).await?;
        let served = tokio::select! {
            served = self.start(&meta, &point) => served,
            signal = signals.next() => Err(anyhow!("{signal} came before the volume was mounted")),
        };
        let served = match served {
            Ok(served) => served,
            Err(error) => {
                // Its session is not to be left behind.
                if let Err(error) = meta.close().await {
                    warn!(%error, "closing metadata");
                }
                return Err(error);
            }
        };
        let name = meta.facts().setting().name.clone();
        let ready = format!("volume {name} is mounted at {}{note}", point.display());
        info!("{ready}");
        let told = tell(caller, &ready);
        service::ready();
        let (why, flush) = match told {
            Ok(()) => served.wait(&meta, &mut signals).await,
            Err(error) => {
                warn!("{error:#}");
                (Why::Unwanted, false)
            }
        };
        served.end(why, flush, &mut signals).await
    }

    /// Which volume it is; the embedded one is made if it is not there, and that is worth a note.
    async fn volume(&self, said: Option<Address>) -> anyhow::Result<(Address, String)> {
        if let Some(address) = said {
            return Ok((address, String::new()));
        }
        let dir = embedded::folder(self.args.general.data_dir.as_deref())?;
        let address = embedded::address(&dir)?;
        let made = embedded::ensure(&dir, &address).await?;
        let note = if made { "; new, in" } else { "; in" };
        Ok((address, format!("{note} {}", dir.display())))
    }

    async fn connect(&self, address: &Address, point: &Path) -> anyhow::Result<Arc<Meta>> {
        let point = point.to_string_lossy();
        let (deletes, read_only) = (self.args.storage.max_deletes, self.args.is_read_only());
        let options = self.args.meta.options(&self.args.meta_cache, &point, deletes, read_only);
        info!("metadata is in {address}");
        let meta = Meta::connect(address.expose(), options).await;
        meta.with_context(|| format!("cannot open the volume at {address}"))
    }

    async fn start(&self, meta: &Arc<Meta>, point: &Path) -> anyhow::Result<Served> {
        let root = match &self.args.meta.subdir {
            Some(subdir) => {
                meta.ensure_dir(subdir).await.with_context(|| format!("--subdir {subdir}"))?
            }
            None => Ino::ROOT,
        };
        let setting = meta.facts().setting();
        let shown_point = point.to_string_lossy().into_owned();
        let registry = self.args.metrics.registry(&shown_point, &setting.name)?;
        usage::register(&registry)?;
        let overrides = self.args.storage.overrides(&setting, Overrides::from_environment()?)?;
        if self.args.storage.check_storage {
            check_storage(meta, &overrides).await?;
        }
        let cache = match self.args.cache.cache(&self.args.storage)? {
            Some(options) => Some(Cache::open(options).await?),
            None => None,
        };
        let listener = self.listen().await;
        meta.start(Registration::New).await.context("registering the mount")?;
        let address = listener.as_ref().and_then(|listener| listener.local_addr().ok());
        let config =
            self.args.shown(meta, &shown_point, address.map(|address| address.to_string()))?;
        let options = VolumeOptions {
            storage: overrides,
            data: self.args.cache.data(&self.args.storage, self.args.is_read_only()),
            budget: Budget::new(usize::try_from(self.args.cache.buffer())?),
            cache: cache.clone(),
            cache_owner: None,
            cache_share: None,
            registry: registry.clone(),
            root,
        };
        let volume = Volume::open(Arc::clone(meta), options).await?;
        let request = MountRequest {
            point: point.to_owned(),
            root,
            vfs: self.args.fuse.vfs(&self.args.meta_cache, self.args.cache.max_readahead),
            mount: self.args.fuse.mount(
                &setting,
                self.args.is_read_only(),
                self.args.general.force,
            ),
            init: self.args.fuse.wishes(&setting),
            session: SessionOptions::default(),
            memory: Budget::new(TABLES),
            visibility: Visibility::All,
            config,
            registry: None,
        };
        let mounted = match Mounted::start(Arc::clone(&volume), request).await {
            Ok(mounted) => mounted,
            Err(error) => {
                // What goes wrong while cleaning up would hide why it was begun.
                if let Err(error) = volume.close(false).await {
                    warn!(%error, "cannot close the volume");
                }
                return Err(error.into());
            }
        };
        let scrapes = listener.map(|listener| scrapes(listener, registry));
        Ok(Served { mounted, volume, cache, _scrapes: scrapes })
    }

    /// A mount without metrics is better than none.
    async fn listen(&self) -> Option<TcpListener> {
        let listener = match self.args.metrics.address() {
            Ok((address, any_port)) => {
                scrape::listen(address, scrape::METRICS, any_port).await.map_err(Into::into)
            }
            Err(error) => Err(error),
        };
        listener.map_err(|error| warn!("no metrics are served: {error:#}")).ok()
    }
}

/// Who waits hears it; in the foreground, the log has said it.
fn tell(caller: &mut Option<Caller>, ready: &str) -> anyhow::Result<()> {
    let Some(caller) = caller.take() else { return Ok(()) };
    // The file system that we were started in can be unmounted from now on.
    std::env::set_current_dir("/").context("leaving the working directory")?;
    caller.ready(ready)
}

impl Served {
    /// Waits for the end; answers also whether everything is to be uploaded before it.
    async fn wait(&self, meta: &Meta, signals: &mut Signals) -> (Why, bool) {
        let mut flush = false;
        let (ended, lost) = (self.mounted.ended(), meta.lost());
        tokio::pin!(ended, lost);
        loop {
            // Signals first: one may be about the end that comes right after it.
            tokio::select! {
                biased;
                asked = signals.next_of_all() => match asked {
                    Asked::Flush => flush = true,
                    Asked::End(signal) => return (Why::Signal(signal), flush),
                },
                end = &mut ended => return (Why::Ended(end), flush),
                error = &mut lost => return (Why::Lost(error), flush),
            }
        }
    }

    /// Unmounts and stores what is dirty, unless a second signal says not to.
    async fn end(self, why: Why, flush: bool, signals: &mut Signals) -> anyhow::Result<()> {
        service::stopping();
        match &why {
            Why::Signal(name) => info!("{name}: unmounting"),
            Why::Ended(SessionEnd::Unmounted) => info!("unmounted"),
            Why::Ended(end) => warn!("the mount is gone: {end:?}"),
            Why::Lost(error) => warn!(%error, "the volume is not ours any more: unmounting"),
            Why::Unwanted => info!("unmounting"),
        }
        let closing = async {
            let stored = self.mounted.close().await;
            let closed = self.volume.close(flush).await;
            if let Some(cache) = self.cache {
                cache.close().await;
            }
            stored.and(closed)
        };
        tokio::select! {
            closed = closing => {
                closed.context("not everything could be stored").map_err(|e| Exit::Unflushed.with(e))?;
            }
            signal = signals.next() => {
                let error = anyhow!("{signal} again: ended before everything was stored");
                return Err(Exit::Unflushed.with(error));
            }
        }
        match why {
            Why::Signal(_)
            | Why::Unwanted
            | Why::Ended(SessionEnd::Unmounted | SessionEnd::Stopped) => Ok(()),
            Why::Ended(SessionEnd::Aborted) => {
                Err(Exit::Cut.with(anyhow!("the connection to the kernel was cut")))
            }
            Why::Ended(SessionEnd::Failed(errno)) => {
                Err(Exit::Cut.with(anyhow!("the connection to the kernel failed: {errno}")))
            }
            Why::Lost(error) => Err(Exit::Lost.with(error.into())),
        }
    }
}

fn scrapes(listener: TcpListener, registry: Registry) -> AbortOnDropHandle<()> {
    let answer =
        move |method: &Method, path: &str| scrape::metrics(method, path, &registry.gather());
    AbortOnDropHandle::new(tokio::spawn(scrape::serve(listener, Bounds::METRICS, answer)))
}

/// Finds out now what would fail later.
async fn check_storage(meta: &Meta, overrides: &Overrides) -> anyhow::Result<()> {
    let store = object::open(&spec(&meta.facts().setting(), overrides)?)?;
    let tested = object::probe(store.as_ref(), 0, true).await;
    tested.with_context(|| format!("storage {} does not work", store.place()))
}
