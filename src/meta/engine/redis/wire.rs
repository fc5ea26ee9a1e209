//! The wire: requests that survive reconnects.
//!
//! A request that was surely not carried out is sent again, for a bounded time. One whose answer
//! was lost is sent again only if it bears repeating.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rand::RngExt;
use redis::{Cmd, Pipeline, Value};
use tokio_rustls::TlsConnector;

use super::address::{Address, Endpoint, Topology};
use super::fault::{Advice, Fault, unreachable};
use super::link::{Dialer, Link};
use super::queue::Silence;
use super::reply::Replies;
use super::{greeting, route, script};
use crate::error::{Error, Result};
use crate::outage::{METADATA, Messages, Outage};
use crate::policy::Policy;
use crate::sync::Mutex;
use crate::tls::OptionNames;

/// How an address names files of TLS.
const TLS_OPTIONS: OptionNames =
    OptionNames { ca: "tls-ca-cert-file", cert: "tls-cert-file", key: "tls-key-file" };

/// How long a request is tried before the caller hears of it. Long enough for a restart or a
/// failover, short enough for someone who waits in front of a file.
const PATIENCE: Duration = Duration::from_secs(15);

/// Longest pause between two tries.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Tries that need no pause, such as after an idle connection was closed.
const AT_ONCE: u32 = 2;

/// Of a server that takes no more.
const MEMORY: Messages = Messages {
    fails: "the metadata server writes nothing, for want of memory",
    works: "the metadata server writes again",
};

/// Why a request has no answer.
#[derive(Debug)]
pub(super) enum Failure {
    /// It was not carried out.
    Refused(Error),
    /// It was sent and the answer was lost.
    Lost(Error),
}

impl Failure {
    fn error(&self) -> &Error {
        match self {
            Self::Refused(error) | Self::Lost(error) => error,
        }
    }
}

/// Whether a request may be carried out twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeat {
    Harmless,
    Never,
}

/// Looks for a fault in a request's answers.
pub(super) type Judge = fn(&[Value]) -> Option<Fault>;

pub(super) struct Wire {
    place: Arc<str>,
    address: Address,
    dialer: Dialer,
    prefix: String,
    /// Cluster nodes that others told of.
    known: Mutex<Vec<Endpoint>>,
    current: Mutex<Option<Arc<Link>>>,
    /// Held while dialing; remembers the last failure, so that all who waited for it share it.
    dialing: tokio::sync::Mutex<Option<(Instant, Error)>>,
    round_trips: AtomicU64,
    closed: AtomicBool,
    outage: Outage,
    /// The server takes no more, for want of memory.
    full: Outage,
}

impl Wire {
    /// Connects once, without retrying: who opens a volume wants to hear what is wrong.
    pub async fn open(mut address: Address, policy: &Arc<Policy>) -> Result<Self> {
        let place: Arc<str> = address.place.as_str().into();
        let connector = address.tls.as_ref().map(|tls| tls.files.config(TLS_OPTIONS, policy));
        let dialer = Dialer {
            place: place.clone(),
            policy: Arc::clone(policy),
            tls: connector
                .transpose()
                .map_err(|error| match error {
                    Error::BadInput(what) => {
                        Error::bad_input(format!("metadata address {place}: {what}"))
                    }
                    other => other,
                })?
                .map(|config| TlsConnector::from(Arc::new(config))),
            server_name: address.tls.as_ref().and_then(|tls| tls.server_name.clone()),
            dial_timeout: address.dial_timeout,
            answer_timeout: address.answer_timeout,
        };
        let mut first = None;
        if let Topology::Single(endpoint) = address.topology.clone() {
            let link = dialer.dial(&endpoint, &address.login).await?;
            if dialer.in_time(&link, route::is_cluster(&place, &link)).await? {
                address.topology = Topology::Cluster(vec![endpoint]);
            } else {
                first = Some(link);
            }
        }
        let prefix = match address.topology {
            Topology::Cluster(_) => format!("{{{}}}", address.db),
            _ => String::new(),
        };
        let wire = Self {
            place,
            address,
            dialer,
            prefix,
            known: Mutex::new(Vec::new()),
            current: Mutex::new(None),
            dialing: tokio::sync::Mutex::new(None),
            round_trips: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            outage: Outage::new(METADATA),
            full: Outage::new(MEMORY),
        };
        let link = match first {
            Some(link) => link,
            None => wire.find().await?,
        };
        wire.prepare(&link).await?;
        wire.dialer.in_time(&link, greeting::check_server(&wire.place, &link)).await?;
        *wire.slot() = Some(Arc::new(link));
        Ok(wire)
    }

    pub fn place(&self) -> &str {
        &self.place
    }

    /// What all keys start with.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    pub fn is_cluster(&self) -> bool {
        matches!(self.address.topology, Topology::Cluster(_))
    }

    /// Requests sent so far; a pipeline or a script is one.
    pub fn round_trips(&self) -> u64 {
        self.round_trips.load(Ordering::Relaxed)
    }

    /// Sends commands that may be carried out twice.
    pub async fn ask(&self, pipe: &Pipeline) -> Result<Replies> {
        match self.send(pipe, Repeat::Harmless, any_fault).await {
            Ok(values) => Ok(Replies::new(self.place.clone(), values)),
            Err(Failure::Refused(error) | Failure::Lost(error)) => Err(error),
        }
    }

    pub async fn ask_one(&self, cmd: Cmd) -> Result<Replies> {
        self.ask(&single(cmd)).await
    }

    /// Sends a command for callers who care whether it was carried out.
    pub async fn tell(&self, cmd: Cmd, repeat: Repeat, judge: Judge) -> Result<Replies, Failure> {
        let values = self.send(&single(cmd), repeat, judge).await?;
        Ok(Replies::new(self.place.clone(), values))
    }

    /// Sends a command that must not be carried out twice, for callers who cannot look whether it
    /// was.
    pub async fn tell_or_unknown(&self, cmd: Cmd, what: &'static str) -> Result<Replies> {
        self.tell(cmd, Repeat::Never, any_fault).await.map_err(|failure| match failure {
            Failure::Refused(error) => error,
            Failure::Lost(error) => Error::Unknown {
                place: self.place.to_string(),
                what,
                cause: match error {
                    Error::Unreachable { cause, .. } => cause,
                    other => other.to_string(),
                },
            },
        })
    }

    /// Ends all connections; what is asked later is refused.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        if let Some(link) = self.slot().take() {
            link.cut();
        }
    }

    async fn send(
        &self,
        pipe: &Pipeline,
        repeat: Repeat,
        judge: Judge,
    ) -> Result<Vec<Value>, Failure> {
        let started = Instant::now();
        let mut pause = self.address.min_backoff;
        let mut at_once = AT_ONCE;
        loop {
            let failure = match self.send_once(pipe, judge).await {
                Ok(values) => {
                    self.outage.succeeded(&self.place);
                    self.look_for_want_of_memory(&values);
                    return Ok(values);
                }
                Err(Attempt::Again(_)) if at_once > 0 => {
                    at_once -= 1;
                    continue;
                }
                Err(Attempt::Final(failure)) => {
                    self.outage.gave_up(failure.error());
                    return Err(failure);
                }
                Err(Attempt::Again(failure) | Attempt::Failed(failure)) => failure,
            };
            if self.closed.load(Ordering::Acquire) {
                return Err(failure);
            }
            if matches!(failure, Failure::Lost(_)) && repeat == Repeat::Never {
                self.outage.failed(failure.error());
                return Err(failure);
            }
            if started.elapsed() + pause >= PATIENCE {
                self.outage.gave_up(failure.error());
                return Err(failure);
            }
            self.outage.failed(failure.error());
            // Clients that lost the same server do not come back in step.
            let share = rand::rng().random_range(0.5..1.0);
            tokio::time::sleep(pause.mul_f64(share)).await;
            pause = (pause * 2).min(self.address.max_backoff).min(LONGEST_PAUSE);
        }
    }

    fn look_for_want_of_memory(&self, values: &[Value]) {
        if let Some(fault) = values.iter().filter_map(Fault::of).find(Fault::is_want_of_memory) {
            self.ran_full(&fault);
        }
    }

    /// The server refused to write for want of memory.
    pub fn ran_full(&self, fault: &Fault) {
        self.full.gave_up(&format!("{}: {}", self.place, fault.text()));
    }

    /// The server has written something.
    pub fn wrote(&self) {
        self.full.succeeded(&self.place);
    }

    async fn send_once(&self, pipe: &Pipeline, judge: Judge) -> Result<Vec<Value>, Attempt> {
        let link = self.link().await.map_err(|error| {
            let passing = matches!(error, Error::Unreachable { .. });
            let failure = Failure::Refused(error);
            if passing { Attempt::Failed(failure) } else { Attempt::Final(failure) }
        })?;
        self.round_trips.fetch_add(1, Ordering::Relaxed);
        let values = match link.exchange(pipe).await {
            Ok(values) => values,
            Err(silence) => {
                self.forget(&link);
                return Err(match silence {
                    Silence::Unsent(cause) => Attempt::Again(self.refused(cause)),
                    Silence::Lost(cause) => {
                        Attempt::Failed(Failure::Lost(unreachable(&self.place, cause)))
                    }
                });
            }
        };
        let Some(fault) = judge(&values) else { return Ok(values) };
        match fault.advice() {
            Advice::GiveUp => return Ok(values),
            Advice::Reload => match load_scripts(&link).await {
                Ok(()) => return Err(Attempt::Again(self.refused(fault.text()))),
                Err(_) => self.forget(&link),
            },
            Advice::Move => self.forget(&link),
            Advice::Wait => {}
        }
        Err(Attempt::Failed(self.refused(fault.text())))
    }

    fn refused(&self, cause: impl Into<String>) -> Failure {
        Failure::Refused(unreachable(&self.place, cause))
    }

    /// The open link, or a new one.
    async fn link(&self) -> Result<Arc<Link>> {
        if let Some(link) = self.live() {
            return Ok(link);
        }
        let asked = Instant::now();
        let mut last = self.dialing.lock().await;
        if let Some(link) = self.live() {
            return Ok(link);
        }
        if let Some((at, error)) = &*last
            && *at >= asked
        {
            return Err(error.clone());
        }
        if self.closed.load(Ordering::Acquire) {
            return Err(unreachable(&self.place, "the connection was closed"));
        }
        match self.dial().await {
            Ok(link) => {
                *last = None;
                let link = Arc::new(link);
                *self.slot() = Some(link.clone());
                if self.closed.load(Ordering::Acquire) {
                    self.close();
                }
                Ok(link)
            }
            Err(error) => {
                *last = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    async fn dial(&self) -> Result<Link> {
        let link = self.find().await?;
        self.prepare(&link).await?;
        Ok(link)
    }

    async fn find(&self) -> Result<Link> {
        route::open(&self.dialer, &self.address, &self.prefix, &self.known).await
    }

    /// Only the prefix knows of the database in a cluster.
    async fn prepare(&self, link: &Link) -> Result<()> {
        let db = if self.is_cluster() { 0 } else { self.address.db };
        self.dialer.in_time(link, greeting::prepare(&self.place, link, db)).await
    }

    fn live(&self) -> Option<Arc<Link>> {
        self.slot().as_ref().filter(|link| !link.is_dead()).cloned()
    }

    fn forget(&self, link: &Arc<Link>) {
        let mut slot = self.slot();
        if slot.as_ref().is_some_and(|current| Arc::ptr_eq(current, link)) {
            *slot = None;
        }
    }

    fn slot(&self) -> crate::sync::MutexGuard<'_, Option<Arc<Link>>> {
        self.current.lock()
    }
}

enum Attempt {
    /// Nothing was carried out, and the next try can follow at once.
    Again(Failure),
    /// A pause and another try may help.
    Failed(Failure),
    Final(Failure),
}

/// A fault of any command that asks for more than giving up.
pub(super) fn any_fault(values: &[Value]) -> Option<Fault> {
    values.iter().filter_map(Fault::of).find(|fault| fault.advice() != Advice::GiveUp)
}

pub(super) fn single(cmd: Cmd) -> Pipeline {
    let mut pipe = Pipeline::with_capacity(1);
    pipe.add_command(cmd);
    pipe
}

async fn load_scripts(link: &Link) -> Result<(), String> {
    let mut pipe = redis::pipe();
    for script in script::ALL {
        pipe.add_command(script.load());
    }
    let values = link.exchange(&pipe).await.map_err(Silence::cause)?;
    match values.iter().find_map(Fault::of) {
        Some(fault) => Err(fault.text().to_owned()),
        None => Ok(()),
    }
}
