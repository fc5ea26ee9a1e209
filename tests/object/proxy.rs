//! An HTTP proxy for tests. It forwards plain requests with absolute URIs, and opens tunnels only
//! to the TLS port. Every host is the one test server. It records the requests.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::header::{CONTENT_TYPE, HOST, PROXY_AUTHORIZATION};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;

/// A request as the proxy received it.
#[derive(Debug, Clone)]
pub struct ProxyRequest {
    pub method: String,
    /// The request target of the first line.
    pub target: String,
    pub headers: HeaderMap,
}

impl ProxyRequest {
    /// Returns a header; empty if it is missing.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("a header is text"))
    }
}

/// A running proxy, stopped when dropped.
pub struct Proxy {
    port: u16,
    state: Arc<State>,
    runtime: Option<Runtime>,
}

struct State {
    server: SocketAddr,
    asked: Mutex<Vec<ProxyRequest>>,
    connections: AtomicUsize,
    /// The required `Proxy-Authorization`, if any.
    required: Mutex<Option<&'static str>>,
    /// If set, every request is refused with this status.
    refusal: Mutex<Option<StatusCode>>,
}

impl Proxy {
    /// Starts a proxy for which every host is this server.
    pub fn start(server: SocketAddr) -> Self {
        Self::serve(server, None)
    }

    /// Starts a proxy that requires TLS.
    pub fn start_tls(server: SocketAddr, config: rustls::ServerConfig) -> Self {
        Self::serve(server, Some(TlsAcceptor::from(Arc::new(config))))
    }

    fn serve(server: SocketAddr, tls: Option<TlsAcceptor>) -> Self {
        let state = Arc::new(State {
            server,
            asked: Mutex::default(),
            connections: AtomicUsize::new(0),
            required: Mutex::default(),
            refusal: Mutex::default(),
        });
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("proxy")
            .enable_all()
            .build()
            .expect("a thread for the proxy");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.set_nonblocking(true).expect("a listener that does not block");
        let port = listener.local_addr().expect("an address").port();
        let serving = Arc::clone(&state);
        runtime.spawn(async move {
            let listener = TcpListener::from_std(listener).expect("a listener");
            while let Ok((stream, _)) = listener.accept().await {
                serving.connections.fetch_add(1, Ordering::Relaxed);
                let (state, tls) = (Arc::clone(&serving), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => talk(stream, state).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                talk(stream, state).await;
                            }
                        }
                    }
                });
            }
        });
        Self { port, state, runtime: Some(runtime) }
    }

    /// Returns its host and port.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Requires this `Proxy-Authorization` from now on.
    pub fn require(&self, authorization: &'static str) {
        *self.state.required.lock().unwrap() = Some(authorization);
    }

    /// Refuses every request with this status from now on.
    pub fn refuse(&self, status: StatusCode) {
        *self.state.refusal.lock().unwrap() = Some(status);
    }

    /// Returns the requests since the last call.
    pub fn requests(&self) -> Vec<ProxyRequest> {
        std::mem::take(&mut self.state.asked.lock().unwrap())
    }

    /// Returns the number of connections so far.
    pub fn connections(&self) -> usize {
        self.state.connections.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn talk(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, state: Arc<State>) {
    let answer = service_fn(|request| answer(&state, request));
    let serving = http1::Builder::new().serve_connection(TokioIo::new(stream), answer);
    // A closed connection is not an error of the proxy.
    let _ = serving.with_upgrades().await;
}

async fn answer(state: &State, request: Request<Incoming>) -> hyper::Result<Response<Reply>> {
    state.asked.lock().unwrap().push(ProxyRequest {
        method: request.method().to_string(),
        target: request.uri().to_string(),
        headers: request.headers().clone(),
    });
    if let Some(status) = *state.refusal.lock().unwrap() {
        return Ok(page(status));
    }
    let shown = request.headers().get(PROXY_AUTHORIZATION).map(|value| value.as_bytes().to_vec());
    let required = state.required.lock().unwrap().map(str::as_bytes);
    if required.is_some() && required != shown.as_deref() {
        return Ok(page(StatusCode::PROXY_AUTHENTICATION_REQUIRED));
    }
    let is_tls = request.uri().port_u16() == Some(443);
    if request.method() == Method::CONNECT {
        return Ok(if is_tls {
            tunnel(state.server, request)
        } else {
            page(StatusCode::FORBIDDEN)
        });
    }
    // A request without an absolute URI is meant for a server.
    if request.uri().scheme_str() != Some("http") {
        return Ok(page(StatusCode::BAD_REQUEST));
    }
    forward(state.server, request).await
}

fn tunnel(server: SocketAddr, request: Request<Incoming>) -> Response<Reply> {
    tokio::spawn(async move {
        let Ok(near) = hyper::upgrade::on(request).await else { return };
        let Ok(mut far) = TcpStream::connect(server).await else { return };
        let _ = copy_bidirectional(&mut TokioIo::new(near), &mut far).await;
    });
    Response::new(Reply::Said(None))
}

/// Forwards the request to the server by its path, without the headers for the proxy.
async fn forward(
    server: SocketAddr,
    mut request: Request<Incoming>,
) -> hyper::Result<Response<Reply>> {
    let Ok(stream) = TcpStream::connect(server).await else {
        return Ok(page(StatusCode::BAD_GATEWAY));
    };
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    // The first line takes precedence over the header.
    let host = request.uri().authority().expect("a whole address").to_string();
    request.headers_mut().insert(HOST, host.parse().expect("a header"));
    request.headers_mut().remove(PROXY_AUTHORIZATION);
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = path.parse::<Uri>().expect("a path");
    Ok(sender.send_request(request).await?.map(Reply::Passed))
}

/// Returns a page of the proxy itself.
fn page(status: StatusCode) -> Response<Reply> {
    let text = format!("<html><body>{status}</body></html>");
    let mut answer = Response::new(Reply::Said(Some(text.into())));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, "text/html".parse().expect("a header"));
    answer
}

/// The body of a response: the server's, or the proxy's own.
enum Reply {
    Passed(Incoming),
    Said(Option<Bytes>),
}

impl Body for Reply {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        match &mut *self {
            Self::Passed(body) => Pin::new(body).poll_frame(cx),
            Self::Said(text) => Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Passed(body) => body.is_end_stream(),
            Self::Said(text) => text.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Passed(body) => body.size_hint(),
            Self::Said(text) => {
                SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64))
            }
        }
    }
}
