//! The Redis client: requests that survive reconnects.
//!
//! All requests share one [`connection`]. A request that was certainly not executed is sent again,
//! for a bounded time. A request whose reply was lost is sent again only if executing it twice does
//! no harm.

pub(super) mod address;
mod connection;
mod handshake;
mod multiplexer;
pub(super) mod reply;
mod request_queue;
mod resp;
mod routing;
pub(super) mod server_error;
mod socket;
mod url_parameters;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rand::RngExt;
use redis::{Cmd, Pipeline, Value};
use tokio_rustls::TlsConnector;

use self::address::{Address, Endpoint, Topology};
use self::connection::{Connection, Dialer};
use self::reply::Replies;
use self::request_queue::NoReply;
use self::server_error::{Recovery, ServerError, unreachable_error};
use crate::error::{Error, Result};
use crate::outage::{METADATA, Messages, Outage};
use crate::policy::Policy;
use crate::sync::Mutex;
use crate::tls::OptionNames;

/// The parameters of an address that name TLS files.
const TLS_OPTIONS: OptionNames =
    OptionNames { ca: "tls-ca-cert-file", cert: "tls-cert-file", key: "tls-key-file" };

/// How long a request is retried before its caller gets the error. Long enough for a restart or a
/// failover, short enough for a user waiting on a file.
const RETRY_FOR: Duration = Duration::from_secs(15);

/// The longest pause between two attempts.
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// Attempts that need no pause, such as the one after the server closed an idle connection.
const IMMEDIATE_RETRIES: u32 = 2;

/// Log lines for a server that refuses writes because its memory is full.
const MEMORY: Messages = Messages {
    fails: "the metadata server refuses writes: it is out of memory",
    works: "the metadata server accepts writes again",
};

/// Why a request has no reply.
#[derive(Debug)]
pub(super) enum RequestError {
    /// The server did not execute it.
    NotExecuted(Error),
    /// It was sent, and the reply was lost.
    OutcomeUnknown(Error),
}

impl RequestError {
    fn error(&self) -> &Error {
        match self {
            Self::NotExecuted(error) | Self::OutcomeUnknown(error) => error,
        }
    }
}

/// Whether a request may be executed twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeat {
    Allowed,
    Forbidden,
}

/// Returns the error in a request's replies that decides whether to send it again.
pub(super) type ErrorFinder = fn(&[Value]) -> Option<ServerError>;

/// A connection to the server in charge of the volume, reopened when it is lost.
pub(super) struct Client {
    place: Arc<str>,
    address: Address,
    dialer: Dialer,
    prefix: String,
    /// Cluster nodes that other nodes have named.
    known_nodes: Mutex<Vec<Endpoint>>,
    current: Mutex<Option<Arc<Connection>>>,
    /// Held while dialing. Remembers the last failure, so that all callers who waited share it.
    dialing: tokio::sync::Mutex<Option<(Instant, Error)>>,
    round_trips: AtomicU64,
    closed: AtomicBool,
    unreachable: Outage,
    out_of_memory: Outage,
}

impl Client {
    /// Connects once, without retrying: the user who opens a volume wants to see the error.
    pub async fn open(mut address: Address, policy: &Arc<Policy>) -> Result<Self> {
        let place: Arc<str> = address.place.as_str().into();
        let dialer = dialer(&place, &address, policy)?;
        let mut first = None;
        if let Topology::Single(endpoint) = address.topology.clone() {
            let connection = dialer.dial(&endpoint, &address.login).await?;
            let is_cluster = routing::is_cluster(&place, &connection);
            if dialer.within_dial_timeout(&connection, is_cluster).await? {
                address.topology = Topology::Cluster(vec![endpoint]);
            } else {
                first = Some(connection);
            }
        }
        let prefix = match address.topology {
            Topology::Cluster(_) => format!("{{{}}}", address.db),
            _ => String::new(),
        };
        let client = Self {
            place,
            address,
            dialer,
            prefix,
            known_nodes: Mutex::new(Vec::new()),
            current: Mutex::new(None),
            dialing: tokio::sync::Mutex::new(None),
            round_trips: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            unreachable: Outage::new(METADATA),
            out_of_memory: Outage::new(MEMORY),
        };
        let connection = match first {
            Some(connection) => connection,
            None => client.find_server().await?,
        };
        client.prepare(&connection).await?;
        let check = handshake::check_server(&client.place, &connection);
        client.dialer.within_dial_timeout(&connection, check).await?;
        *client.current.lock() = Some(Arc::new(connection));
        Ok(client)
    }

    pub fn place(&self) -> &str {
        &self.place
    }

    /// Returns what all keys start with.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    pub fn is_cluster(&self) -> bool {
        matches!(self.address.topology, Topology::Cluster(_))
    }

    /// Returns the number of requests sent so far. A pipeline or a script counts as one.
    pub fn round_trips(&self) -> u64 {
        self.round_trips.load(Ordering::Relaxed)
    }

    /// Sends commands that may be executed twice.
    pub async fn query(&self, pipe: &Pipeline) -> Result<Replies> {
        match self.send(pipe, Repeat::Allowed, retryable_error).await {
            Ok(values) => Ok(Replies::new(self.place.clone(), values)),
            Err(RequestError::NotExecuted(error) | RequestError::OutcomeUnknown(error)) => {
                Err(error)
            }
        }
    }

    /// As [`Client::query`], for one command.
    pub async fn query_one(&self, cmd: Cmd) -> Result<Replies> {
        self.query(&single(cmd)).await
    }

    /// Sends a command whose caller must know whether it was executed.
    pub async fn execute(
        &self,
        cmd: Cmd,
        repeat: Repeat,
        find_error: ErrorFinder,
    ) -> Result<Replies, RequestError> {
        let values = self.send(&single(cmd), repeat, find_error).await?;
        Ok(Replies::new(self.place.clone(), values))
    }

    /// Sends a command that must not be executed twice and whose effect the caller cannot check.
    /// Returns [`Error::Unknown`] if the reply was lost; `what` names the command there.
    pub async fn execute_once(&self, cmd: Cmd, what: &'static str) -> Result<Replies> {
        let replies = self.execute(cmd, Repeat::Forbidden, retryable_error).await;
        replies.map_err(|error| match error {
            RequestError::NotExecuted(error) => error,
            RequestError::OutcomeUnknown(error) => Error::Unknown {
                place: self.place.to_string(),
                what,
                cause: match error {
                    Error::Unreachable { cause, .. } => cause,
                    other => other.to_string(),
                },
            },
        })
    }

    /// Closes the connection. Later requests fail.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        if let Some(connection) = self.current.lock().take() {
            connection.close();
        }
    }

    async fn send(
        &self,
        pipe: &Pipeline,
        repeat: Repeat,
        find_error: ErrorFinder,
    ) -> Result<Vec<Value>, RequestError> {
        let started = Instant::now();
        let mut pause = self.address.min_backoff;
        let mut immediate_retries = IMMEDIATE_RETRIES;
        loop {
            let failure = match self.send_once(pipe, find_error).await {
                Ok(values) => {
                    self.unreachable.succeeded(&self.place);
                    self.check_out_of_memory(&values);
                    return Ok(values);
                }
                Err(AttemptError::RetryNow(_)) if immediate_retries > 0 => {
                    immediate_retries -= 1;
                    continue;
                }
                Err(AttemptError::GiveUp(failure)) => {
                    self.unreachable.gave_up(failure.error());
                    return Err(failure);
                }
                Err(AttemptError::RetryNow(failure) | AttemptError::RetryLater(failure)) => failure,
            };
            if self.closed.load(Ordering::Acquire) {
                return Err(failure);
            }
            if matches!(failure, RequestError::OutcomeUnknown(_)) && repeat == Repeat::Forbidden {
                self.unreachable.failed(failure.error());
                return Err(failure);
            }
            if started.elapsed() + pause >= RETRY_FOR {
                self.unreachable.gave_up(failure.error());
                return Err(failure);
            }
            self.unreachable.failed(failure.error());
            // Random, so that clients that lost the same server do not all return at once.
            let share = rand::rng().random_range(0.5..1.0);
            tokio::time::sleep(pause.mul_f64(share)).await;
            pause = (pause * 2).min(self.address.max_backoff).min(MAX_PAUSE);
        }
    }

    fn check_out_of_memory(&self, values: &[Value]) {
        let mut errors = values.iter().filter_map(ServerError::of);
        if let Some(error) = errors.find(ServerError::is_out_of_memory) {
            self.report_out_of_memory(&error);
        }
    }

    /// Records that the server refused a write because its memory is full.
    pub fn report_out_of_memory(&self, error: &ServerError) {
        self.out_of_memory.gave_up(&format!("{}: {}", self.place, error.text()));
    }

    /// Records that the server accepted a write.
    pub fn report_write_accepted(&self) {
        self.out_of_memory.succeeded(&self.place);
    }

    async fn send_once(
        &self,
        pipe: &Pipeline,
        find_error: ErrorFinder,
    ) -> Result<Vec<Value>, AttemptError> {
        let connection = self.connection().await.map_err(|error| {
            let is_passing = matches!(error, Error::Unreachable { .. });
            let failure = RequestError::NotExecuted(error);
            if is_passing {
                AttemptError::RetryLater(failure)
            } else {
                AttemptError::GiveUp(failure)
            }
        })?;
        self.round_trips.fetch_add(1, Ordering::Relaxed);
        let values = match connection.exchange(pipe).await {
            Ok(values) => values,
            Err(no_reply) => {
                self.forget(&connection);
                return Err(match no_reply {
                    NoReply::Unsent(cause) => AttemptError::RetryNow(self.not_executed(cause)),
                    NoReply::Lost(cause) => AttemptError::RetryLater(RequestError::OutcomeUnknown(
                        unreachable_error(&self.place, cause),
                    )),
                });
            }
        };
        let Some(error) = find_error(&values) else { return Ok(values) };
        match error.recovery() {
            Recovery::GiveUp => return Ok(values),
            Recovery::ReloadScripts => match handshake::load_scripts(&connection).await {
                Ok(()) => return Err(AttemptError::RetryNow(self.not_executed(error.text()))),
                Err(_) => self.forget(&connection),
            },
            Recovery::Reroute => self.forget(&connection),
            Recovery::Wait => {}
        }
        Err(AttemptError::RetryLater(self.not_executed(error.text())))
    }

    fn not_executed(&self, cause: impl Into<String>) -> RequestError {
        RequestError::NotExecuted(unreachable_error(&self.place, cause))
    }

    /// Returns the open connection, or opens one.
    async fn connection(&self) -> Result<Arc<Connection>> {
        if let Some(connection) = self.live_connection() {
            return Ok(connection);
        }
        let asked = Instant::now();
        let mut last = self.dialing.lock().await;
        if let Some(connection) = self.live_connection() {
            return Ok(connection);
        }
        if let Some((at, error)) = &*last
            && *at >= asked
        {
            return Err(error.clone());
        }
        if self.closed.load(Ordering::Acquire) {
            return Err(unreachable_error(&self.place, "the connection was closed"));
        }
        match self.dial().await {
            Ok(connection) => {
                *last = None;
                let connection = Arc::new(connection);
                *self.current.lock() = Some(connection.clone());
                if self.closed.load(Ordering::Acquire) {
                    self.close();
                }
                Ok(connection)
            }
            Err(error) => {
                *last = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    async fn dial(&self) -> Result<Connection> {
        let connection = self.find_server().await?;
        self.prepare(&connection).await?;
        Ok(connection)
    }

    async fn find_server(&self) -> Result<Connection> {
        routing::open(&self.dialer, &self.address, &self.prefix, &self.known_nodes).await
    }

    async fn prepare(&self, connection: &Connection) -> Result<()> {
        // A cluster has one database: there, the prefix stands for its number.
        let db = if self.is_cluster() { 0 } else { self.address.db };
        let prepare = handshake::prepare(&self.place, connection, db);
        self.dialer.within_dial_timeout(connection, prepare).await
    }

    fn live_connection(&self) -> Option<Arc<Connection>> {
        self.current.lock().as_ref().filter(|connection| !connection.is_dead()).cloned()
    }

    fn forget(&self, connection: &Arc<Connection>) {
        let mut current = self.current.lock();
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, connection)) {
            *current = None;
        }
    }
}

/// Why one attempt at a request failed, and when to try again.
enum AttemptError {
    /// Nothing was executed, and the next attempt needs no pause.
    RetryNow(RequestError),
    RetryLater(RequestError),
    GiveUp(RequestError),
}

fn dialer(place: &Arc<str>, address: &Address, policy: &Arc<Policy>) -> Result<Dialer> {
    let config = address.tls.as_ref().map(|tls| tls.files.config(TLS_OPTIONS, policy));
    let config = config.transpose().map_err(|error| match error {
        Error::BadInput(what) => Error::bad_input(format!("metadata address {place}: {what}")),
        other => other,
    })?;
    Ok(Dialer {
        place: place.clone(),
        policy: Arc::clone(policy),
        tls: config.map(|config| TlsConnector::from(Arc::new(config))),
        server_name: address.tls.as_ref().and_then(|tls| tls.server_name.clone()),
        dial_timeout: address.dial_timeout,
        reply_timeout: address.reply_timeout,
    })
}

/// Returns the first error that a later attempt may not meet again.
fn retryable_error(values: &[Value]) -> Option<ServerError> {
    values.iter().filter_map(ServerError::of).find(|error| error.recovery() != Recovery::GiveUp)
}

fn single(cmd: Cmd) -> Pipeline {
    let mut pipe = Pipeline::with_capacity(1);
    pipe.add_command(cmd);
    pipe
}
