//! Connections to servers: dialed, logged in, and closed when a reply is overdue.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::Pipeline;
use rustls::pki_types::ServerName;
use tokio::net::{TcpStream, UnixStream};
use tokio::task::AbortHandle;
use tokio_rustls::TlsConnector;

use super::address::{Endpoint, Login};
use super::multiplexer::Multiplexer;
use super::request_queue::Response;
use super::server_error::{ServerError, engine_error, unreachable_error};
use super::single;
use super::socket::Stream;
use crate::error::{Error, Result};
use crate::policy::Policy;

/// How to reach the servers of one address.
pub(super) struct Dialer {
    pub place: Arc<str>,
    /// Checked for every server, including those that other servers name.
    pub policy: Arc<Policy>,
    pub tls: Option<TlsConnector>,
    pub server_name: Option<String>,
    pub dial_timeout: Duration,
    pub reply_timeout: Option<Duration>,
}

/// An open connection that all requests share.
pub(super) struct Connection {
    pub endpoint: Endpoint,
    multiplexer: Arc<Multiplexer>,
    watchdog: Option<AbortHandle>,
}

impl Dialer {
    /// Connects and logs in, within the dial timeout.
    pub async fn dial(&self, endpoint: &Endpoint, login: &Login) -> Result<Connection> {
        let connecting = self.connect_and_log_in(endpoint, login);
        match tokio::time::timeout(self.dial_timeout, connecting).await {
            Ok(connection) => connection,
            Err(_) => Err(self.timed_out(endpoint)),
        }
    }

    /// Bounds an exchange on a new connection by the dial timeout.
    pub async fn within_dial_timeout<T>(
        &self,
        connection: &Connection,
        exchange: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        match tokio::time::timeout(self.dial_timeout, exchange).await {
            Ok(result) => result,
            Err(_) => Err(self.timed_out(&connection.endpoint)),
        }
    }

    fn timed_out(&self, endpoint: &Endpoint) -> Error {
        let limit = self.dial_timeout;
        unreachable_error(&self.place, format!("{endpoint} did not answer within {limit:?}"))
    }

    async fn connect_and_log_in(&self, endpoint: &Endpoint, login: &Login) -> Result<Connection> {
        let failed = |error: String| unreachable_error(&self.place, format!("{endpoint}: {error}"));
        let addresses = self.addresses(endpoint).await?;
        let stream = self.connect(endpoint, &addresses).await.map_err(&failed)?;
        let connection = Connection::new(endpoint.clone(), stream, self.reply_timeout);
        if let Some(password) = &login.password {
            let mut auth = redis::cmd("AUTH");
            if let Some(user) = &login.user {
                auth.arg(user);
            }
            auth.arg(password);
            let values = connection.exchange(&single(auth)).await;
            let values = values.map_err(|no_reply| failed(no_reply.cause()))?;
            if let Some(error) = values.first().and_then(ServerError::of) {
                return Err(self.login_refused(endpoint, &error));
            }
        }
        Ok(connection)
    }

    fn login_refused(&self, endpoint: &Endpoint, error: &ServerError) -> Error {
        match error.code() {
            "LOADING" => unreachable_error(&self.place, format!("{endpoint} is loading its data")),
            _ => {
                engine_error(&self.place, format!("{endpoint} refuses the login: {}", error.text()))
            }
        }
    }

    /// Resolves the server's host and checks each address against the policy.
    async fn addresses(&self, endpoint: &Endpoint) -> Result<Vec<SocketAddr>> {
        match endpoint {
            Endpoint::Unix(path) => {
                self.policy.check_local("metaurl", path)?;
                Ok(Vec::new())
            }
            Endpoint::Tcp { host, port } => {
                self.policy.addresses(host, *port).await.map_err(|error| match error {
                    Error::Unreachable { cause, .. } => {
                        unreachable_error(&self.place, format!("{endpoint}: {cause}"))
                    }
                    other => other,
                })
            }
        }
    }

    async fn connect(
        &self,
        endpoint: &Endpoint,
        addresses: &[SocketAddr],
    ) -> Result<Stream, String> {
        let host = match endpoint {
            Endpoint::Unix(path) => {
                let stream = UnixStream::connect(path).await.map_err(|e| e.to_string())?;
                return Ok(Box::new(stream));
            }
            Endpoint::Tcp { host, .. } => host.as_str(),
        };
        let stream = TcpStream::connect(addresses).await.map_err(|e| e.to_string())?;
        stream.set_nodelay(true).map_err(|e| e.to_string())?;
        let Some(tls) = &self.tls else { return Ok(Box::new(stream)) };
        let name = self.server_name.as_deref().unwrap_or(host);
        let name = ServerName::try_from(name.to_owned()).map_err(|e| format!("{name}: {e}"))?;
        let stream = tls.connect(name, stream).await.map_err(|e| format!("TLS: {e}"))?;
        Ok(Box::new(stream))
    }
}

impl Connection {
    pub fn new(endpoint: Endpoint, stream: Stream, reply_timeout: Option<Duration>) -> Self {
        let multiplexer = Multiplexer::new(endpoint.to_string(), stream);
        let watchdog = reply_timeout.map(|limit| {
            let cause = format!("{endpoint} did not answer in time");
            let watched = Arc::downgrade(&multiplexer);
            tokio::spawn(close_when_overdue(watched, limit, cause)).abort_handle()
        });
        Self { endpoint, multiplexer, watchdog }
    }

    /// Sends all commands at once and waits for their replies. Errors of single commands are among
    /// the values.
    pub async fn exchange(&self, pipe: &Pipeline) -> Response {
        self.multiplexer.exchange(pipe).await
    }

    pub fn is_dead(&self) -> bool {
        self.multiplexer.is_dead()
    }

    /// Closes the connection. Requests without a reply fail.
    pub fn close(&self) {
        self.multiplexer.close("the connection was closed");
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(watchdog) = &self.watchdog {
            watchdog.abort();
        }
    }
}

/// Closes a connection on which a reply is overdue: later replies may never arrive either. One timer
/// is enough for all requests: replies come in order, so the oldest request is due first.
async fn close_when_overdue(multiplexer: Weak<Multiplexer>, limit: Duration, cause: String) {
    let mut left = limit;
    loop {
        tokio::time::sleep(left).await;
        let Some(multiplexer) = multiplexer.upgrade() else { return };
        if multiplexer.is_dead() {
            return;
        }
        let waited = multiplexer.oldest().map_or(Duration::ZERO, |since| since.elapsed());
        if waited >= limit {
            return multiplexer.close(&cause);
        }
        left = limit.saturating_sub(waited);
    }
}
