//! Links: connections to servers, dialed, logged in, and watched for answers that do not come.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::Pipeline;
use rustls::pki_types::ServerName;
use tokio::net::{TcpStream, UnixStream};
use tokio::task::AbortHandle;
use tokio_rustls::TlsConnector;

use super::address::{Endpoint, Login};
use super::fault::{Fault, engine, unreachable};
use super::line::Line;
use super::queue::Answer;
use super::socket::Stream;
use crate::error::{Error, Result};
use crate::policy::Policy;

/// How to reach servers of one address.
pub(super) struct Dialer {
    pub place: Arc<str>,
    /// Asked about every server, also those that others tell of.
    pub policy: Arc<Policy>,
    pub tls: Option<TlsConnector>,
    pub server_name: Option<String>,
    pub dial_timeout: Duration,
    pub answer_timeout: Option<Duration>,
}

/// An open connection, shared by all requests.
pub(super) struct Link {
    pub endpoint: Endpoint,
    line: Arc<Line>,
    watch: Option<AbortHandle>,
}

impl Dialer {
    /// Connects and logs in, within the dial timeout.
    pub async fn dial(&self, endpoint: &Endpoint, login: &Login) -> Result<Link> {
        match tokio::time::timeout(self.dial_timeout, self.greet(endpoint, login)).await {
            Ok(link) => link,
            Err(_) => Err(self.too_late(endpoint)),
        }
    }

    /// Bounds what is said on a new link by the dial timeout.
    pub async fn in_time<T>(
        &self,
        link: &Link,
        talk: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        match tokio::time::timeout(self.dial_timeout, talk).await {
            Ok(answer) => answer,
            Err(_) => Err(self.too_late(&link.endpoint)),
        }
    }

    fn too_late(&self, endpoint: &Endpoint) -> Error {
        let limit = self.dial_timeout;
        unreachable(&self.place, format!("{endpoint} did not answer within {limit:?}"))
    }

    async fn greet(&self, endpoint: &Endpoint, login: &Login) -> Result<Link> {
        let failed = |error: String| unreachable(&self.place, format!("{endpoint}: {error}"));
        let addresses = self.addresses(endpoint).await?;
        let stream = self.connect(endpoint, &addresses).await.map_err(&failed)?;
        let link = Link::new(endpoint.clone(), stream, self.answer_timeout);
        if let Some(password) = &login.password {
            let mut hello = redis::cmd("AUTH");
            if let Some(user) = &login.user {
                hello.arg(user);
            }
            hello.arg(password);
            let mut pipe = redis::pipe();
            pipe.add_command(hello);
            let values = link.exchange(&pipe).await.map_err(|silence| failed(silence.cause()))?;
            if let Some(fault) = values.first().and_then(Fault::of) {
                return Err(match fault.code() {
                    "LOADING" => {
                        unreachable(&self.place, format!("{endpoint} is loading its data"))
                    }
                    _ => engine(
                        &self.place,
                        format!("{endpoint} refuses the login: {}", fault.text()),
                    ),
                });
            }
        }
        Ok(link)
    }

    /// Where the server may be looked for.
    async fn addresses(&self, endpoint: &Endpoint) -> Result<Vec<SocketAddr>> {
        match endpoint {
            Endpoint::Unix(path) => {
                self.policy.check_local("metaurl", path)?;
                Ok(Vec::new())
            }
            Endpoint::Tcp { host, port } => {
                self.policy.addresses(host, *port).await.map_err(|error| match error {
                    Error::Unreachable { cause, .. } => {
                        unreachable(&self.place, format!("{endpoint}: {cause}"))
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

impl Link {
    pub fn new(endpoint: Endpoint, stream: Stream, answer_timeout: Option<Duration>) -> Self {
        let line = Line::new(endpoint.to_string(), stream);
        let watch = answer_timeout.map(|limit| {
            let cause = format!("{endpoint} did not answer in time");
            tokio::spawn(watch(Arc::downgrade(&line), limit, cause)).abort_handle()
        });
        Self { endpoint, line, watch }
    }

    /// Sends all commands at once and waits for their answers; errors of single commands are among
    /// the values.
    pub async fn exchange(&self, pipe: &Pipeline) -> Answer {
        self.line.exchange(pipe).await
    }

    pub fn is_dead(&self) -> bool {
        self.line.is_dead()
    }

    /// Drops the connection under all requests that still wait.
    pub fn cut(&self) {
        self.line.cut("the connection was closed");
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Some(watch) = &self.watch {
            watch.abort();
        }
    }
}

/// Ends a line on which an answer is overdue: after that, nothing that follows can be trusted to
/// arrive. One timer does for all: answers come in order, so the oldest request is due first.
async fn watch(line: Weak<Line>, limit: Duration, cause: String) {
    let mut left = limit;
    loop {
        tokio::time::sleep(left).await;
        let Some(line) = line.upgrade() else { return };
        if line.is_dead() {
            return;
        }
        let waited = line.oldest().map_or(Duration::ZERO, |since| since.elapsed());
        if waited >= limit {
            return line.cut(&cause);
        }
        left = limit.saturating_sub(waited);
    }
}
