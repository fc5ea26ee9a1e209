//! Links: one connection to one server, shared by all requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Pipeline, RedisConnectionInfo, RedisError, Value};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::AbortHandle;
use tokio_rustls::TlsConnector;

use super::address::{Endpoint, Login};
use super::fault::{Fault, engine, unreachable};
use crate::error::{Error, Result};

/// Requests waiting to be written; more wait for their turn.
const QUEUE: usize = 1024;

/// How to reach servers of one address.
pub(super) struct Dialer {
    pub place: Arc<str>,
    pub tls: Option<TlsConnector>,
    pub server_name: Option<String>,
    pub dial_timeout: Duration,
    pub answer_timeout: Option<Duration>,
}

/// An open connection. Its driver notices when the server hangs up.
pub(super) struct Link {
    pub endpoint: Endpoint,
    connection: MultiplexedConnection,
    dead: Arc<AtomicBool>,
    driver: AbortHandle,
}

/// Why a request has no answer.
pub(super) enum Silence {
    /// It was never sent: the link was already down.
    Unsent(String),
    /// It was sent, or may have been.
    Lost(String),
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
        let stream = self.connect(endpoint).await.map_err(&failed)?;
        // Without login and database the library sends nothing by itself, so that all of the
        // greeting below is one round trip and its errors keep their words.
        let info = RedisConnectionInfo::default().set_skip_set_lib_name();
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(self.answer_timeout)
            .set_pipeline_buffer_size(QUEUE);
        let (connection, driver) = MultiplexedConnection::new_with_config(&info, stream, config)
            .await
            .map_err(|error| failed(error.to_string()))?;
        let dead = Arc::new(AtomicBool::new(false));
        let driver = tokio::spawn({
            let dead = dead.clone();
            async move {
                driver.await;
                dead.store(true, Ordering::Release);
            }
        })
        .abort_handle();
        let link = Link { endpoint: endpoint.clone(), connection, dead, driver };
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

    async fn connect(&self, endpoint: &Endpoint) -> Result<Stream, String> {
        let (host, port) = match endpoint {
            Endpoint::Unix(path) => {
                let stream = UnixStream::connect(path).await.map_err(|e| e.to_string())?;
                return Ok(Box::new(stream));
            }
            Endpoint::Tcp { host, port } => (host.as_str(), *port),
        };
        let stream = TcpStream::connect((host, port)).await.map_err(|e| e.to_string())?;
        stream.set_nodelay(true).map_err(|e| e.to_string())?;
        let Some(tls) = &self.tls else { return Ok(Box::new(stream)) };
        let name = self.server_name.as_deref().unwrap_or(host);
        let name = ServerName::try_from(name.to_owned()).map_err(|e| format!("{name}: {e}"))?;
        let stream = tls.connect(name, stream).await.map_err(|e| format!("TLS: {e}"))?;
        Ok(Box::new(stream))
    }
}

impl Link {
    /// Sends all commands at once and waits for their answers; errors of single commands are among
    /// the values.
    pub async fn exchange(&self, pipe: &Pipeline) -> Result<Vec<Value>, Silence> {
        if self.is_dead() {
            return Err(Silence::Unsent("the server closed the connection".to_owned()));
        }
        self.connection
            .clone()
            .send_packed_commands(pipe, 0, pipe.len())
            .await
            .map_err(|error| self.lost(&error))
    }

    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    /// Drops the connection under all requests that still wait.
    pub fn cut(&self) {
        self.dead.store(true, Ordering::Release);
        self.driver.abort();
    }

    fn lost(&self, error: &RedisError) -> Silence {
        // After a timeout, or an answer that does not parse, nothing that follows can be trusted
        // to arrive.
        self.cut();
        if error.is_timeout() {
            return Silence::Lost(format!("{} did not answer in time", self.endpoint));
        }
        Silence::Lost(format!("lost the connection to {}: {error}", self.endpoint))
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Silence {
    pub fn cause(self) -> String {
        match self {
            Self::Unsent(cause) | Self::Lost(cause) => cause,
        }
    }
}

/// Any of the three kinds of stream.
type Stream = Box<dyn Io>;

trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}
