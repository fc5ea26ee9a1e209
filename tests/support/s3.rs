//! An S3 server in the test process: real HTTP requests over loopback, objects in a temporary folder.
//! It records the requests, and injects faults on demand.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::http::response::Parts;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use jfs::object::Spec;
use jfs::secret::Secret;
use s3s::auth::SimpleAuth;
use s3s::host::MultiDomain;
use s3s::service::{S3Service, S3ServiceBuilder};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::{RwLock, watch};
use tokio_rustls::TlsAcceptor;

pub const ACCESS_KEY: &str = "test-access-key";
pub const SECRET_KEY: &str = "test-secret-key";
/// A second valid pair.
pub const OTHER_ACCESS_KEY: &str = "other-access-key";
pub const OTHER_SECRET_KEY: &str = "other-secret-key";

/// A fault injected into one request.
#[derive(Debug, Clone, Copy)]
pub enum Fault {
    /// Responds with this status and error code, and does nothing else.
    Answer(u16, &'static str),
    /// Responds late.
    Delay(Duration),
    /// Closes the connection after this many bytes of the response body.
    Cut(usize),
    /// Responds with the first bytes only, as if they were all.
    Short(usize),
    /// Flips one bit in the middle of the response body.
    WrongByte,
    /// Executes the request, and closes the connection without a response.
    LoseAnswer,
}

/// One request as it was received.
#[derive(Debug, Clone)]
pub struct Seen {
    pub method: String,
    pub path: String,
    pub query: String,
    pub headers: HeaderMap,
}

impl Seen {
    /// Returns a header, empty if there is none.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("a header is text"))
    }
}

/// A running server; dropping it stops it.
pub struct S3Server {
    address: String,
    state: Arc<State>,
    runtime: Option<Runtime>,
}

struct State {
    dir: TempDir,
    /// Domains that bucket names are subdomains of; if there are none, the path names the bucket.
    domains: Vec<String>,
    faults: Mutex<VecDeque<Fault>>,
    seen: Mutex<Vec<Seen>>,
    connections: AtomicUsize,
    /// Held during writes: s3s-fs writes an object and its metadata in two steps.
    writes: RwLock<()>,
    /// Whether requests hang without a response.
    hanging: watch::Sender<bool>,
}

impl State {
    /// Returns the bucket that a host name contains.
    fn bucket_in<'a>(&self, host: &'a str) -> Option<&'a str> {
        let before = |domain: &String| host.strip_suffix(domain.as_str())?.strip_suffix('.');
        self.domains.iter().find_map(before)
    }
}

impl S3Server {
    pub fn start() -> Self {
        Self::serve(None, &[])
    }

    /// Starts a server for buckets below each of these domains, with TLS if `config` is given. Clients
    /// must resolve the names themselves.
    pub fn start_at(domains: &[&str], config: Option<rustls::ServerConfig>) -> Self {
        Self::serve(config.map(|config| TlsAcceptor::from(Arc::new(config))), domains)
    }

    /// Starts a server with TLS.
    pub fn start_tls(config: rustls::ServerConfig) -> Self {
        Self::serve(Some(TlsAcceptor::from(Arc::new(config))), &[])
    }

    fn serve(tls: Option<TlsAcceptor>, domains: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let files = s3s_fs::FileSystem::new(dir.path()).expect("a folder to serve");
        let mut service = S3ServiceBuilder::new(files);
        let mut auth = SimpleAuth::from_single(ACCESS_KEY, SECRET_KEY);
        auth.register(OTHER_ACCESS_KEY.into(), OTHER_SECRET_KEY.into());
        service.set_auth(auth);
        if !domains.is_empty() {
            service.set_host(MultiDomain::new(domains).expect("domains"));
        }
        let service = service.build();
        let state = Arc::new(State {
            dir,
            domains: domains.iter().map(|domain| (*domain).to_owned()).collect(),
            faults: Mutex::default(),
            seen: Mutex::default(),
            connections: AtomicUsize::new(0),
            writes: RwLock::default(),
            hanging: watch::Sender::new(false),
        });
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("s3-server")
            .enable_all()
            .build()
            .expect("threads for the server");
        // Not by `block_on`: the caller may run on a runtime already.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.set_nonblocking(true).expect("a listener that does not block");
        let port = listener.local_addr().expect("an address").port();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let serving = Arc::clone(&state);
        runtime.spawn(async move {
            let listener = TcpListener::from_std(listener).expect("a listener");
            while let Ok((stream, _)) = listener.accept().await {
                serving.connections.fetch_add(1, Ordering::Relaxed);
                let (service, state, tls) = (service.clone(), Arc::clone(&serving), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => talk(stream, &service, &state).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                talk(stream, &service, &state).await;
                            }
                        }
                    }
                });
            }
        });
        let address = format!("{scheme}://127.0.0.1:{port}");
        Self { address, state, runtime: Some(runtime) }
    }

    /// Creates a bucket and returns its address.
    pub fn bucket(&self, name: &str) -> String {
        std::fs::create_dir_all(self.folder(name)).expect("a folder for the bucket");
        self.address(name)
    }

    /// Returns the folder of the objects of a bucket.
    pub fn folder(&self, name: &str) -> std::path::PathBuf {
        self.state.dir.path().join(name)
    }

    /// Returns the address of a bucket, which need not exist.
    pub fn address(&self, name: &str) -> String {
        format!("{}/{name}", self.address)
    }

    /// Returns the socket address that the server listens on.
    pub fn socket(&self) -> std::net::SocketAddr {
        let (_, socket) = self.address.split_once("://").expect("an address");
        socket.parse().expect("an address and a port")
    }

    /// Creates a bucket and returns the spec to open it, without retries.
    pub fn spec(&self, bucket: &str) -> Spec {
        let mut spec = Spec::new("s3", &self.bucket(bucket));
        ACCESS_KEY.clone_into(&mut spec.access_key);
        spec.secret_key = Secret::new(SECRET_KEY);
        spec.retries = 0;
        spec
    }

    /// Injects faults into the next requests, one each.
    pub fn fail(&self, faults: impl IntoIterator<Item = Fault>) {
        self.state.faults.lock().unwrap().extend(faults);
    }

    /// Makes all requests hang, or releases them.
    pub fn hang(&self, hanging: bool) {
        self.state.hanging.send_replace(hanging);
    }

    /// Returns the number of connections so far.
    pub fn connections(&self) -> usize {
        self.state.connections.load(Ordering::Relaxed)
    }

    /// Returns the requests since the last call.
    pub fn seen(&self) -> Vec<Seen> {
        std::mem::take(&mut self.state.seen.lock().unwrap())
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn talk(stream: impl AsyncRead + AsyncWrite + Unpin, service: &S3Service, state: &State) {
    let answer = service_fn(|request| answer(service, state, request));
    // A closed connection is not an error of the server.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
}

async fn answer(
    service: &S3Service,
    state: &State,
    request: Request<Incoming>,
) -> io::Result<Response<Reply>> {
    state.seen.lock().unwrap().push(Seen {
        method: request.method().to_string(),
        path: request.uri().path().to_owned(),
        query: request.uri().query().unwrap_or_default().to_owned(),
        headers: request.headers().clone(),
    });
    // Cannot fail: the sender lives as long as the state.
    let _ = state.hanging.subscribe().wait_for(|hanging| !hanging).await;
    let fault = state.faults.lock().unwrap().pop_front();
    match fault {
        Some(Fault::Answer(status, code)) => return Ok(failure(status, code)),
        Some(Fault::Delay(pause)) => tokio::time::sleep(pause).await,
        _ => {}
    }
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let host = request.headers().get("host").and_then(|host| host.to_str().ok());
    let (bucket, key) = match state.bucket_in(host.unwrap_or_default()) {
        Some(bucket) => (bucket, &path[1..]),
        None => path[1..].split_once('/').unwrap_or((&path[1..], "")),
    };
    let makes_bucket = method == Method::PUT && key.is_empty();
    // s3s-fs does not check this.
    if !makes_bucket && !state.dir.path().join(bucket).is_dir() {
        return Ok(failure(404, "NoSuchBucket"));
    }
    let (head, body) = if method == Method::GET || method == Method::HEAD {
        let _reading = state.writes.read().await;
        call(service, request).await?
    } else {
        let _writing = state.writes.write().await;
        call(service, request).await?
    };
    spoilt(head, body, fault)
}

async fn call(service: &S3Service, request: Request<Incoming>) -> io::Result<(Parts, Bytes)> {
    let is_list = request.uri().query().is_some_and(|query| query.contains("list-type"));
    let answer = service.call(request.map(s3s::Body::from)).await;
    let answer = answer.map_err(|error| io::Error::other(format!("{error:?}")))?;
    let (mut head, body) = answer.into_parts();
    let mut body = whole(body).await;
    if is_list {
        // s3s-fs declares keys as encoded, but does not encode them.
        let text = String::from_utf8(body.to_vec()).expect("a listing is text");
        body = text.replace("<EncodingType>url</EncodingType>", "").into();
        head.headers.remove("content-length");
    }
    Ok((head, body))
}

fn spoilt(mut head: Parts, body: Bytes, fault: Option<Fault>) -> io::Result<Response<Reply>> {
    let reply = match fault {
        Some(Fault::Cut(at)) => Reply::cut(&body, at),
        Some(Fault::LoseAnswer) => return Err(io::Error::other("made to hang up")),
        Some(Fault::Short(length)) => {
            head.headers.remove("content-length");
            Reply::all(body.slice(..length.min(body.len())))
        }
        Some(Fault::WrongByte) => {
            let mut wrong = body.to_vec();
            let middle = wrong.len() / 2;
            // Most responses have no body.
            if let Some(byte) = wrong.get_mut(middle) {
                *byte ^= 1;
            }
            Reply::all(wrong.into())
        }
        _ => Reply::all(body),
    };
    Ok(Response::from_parts(head, reply))
}

fn failure(status: u16, code: &str) -> Response<Reply> {
    let text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\
         <Error><Code>{code}</Code><Message>made to fail</Message></Error>"
    );
    let mut answer = Response::new(Reply::all(text.into()));
    *answer.status_mut() = StatusCode::from_u16(status).expect("a status");
    let id = "test-request".parse().expect("a header");
    answer.headers_mut().insert("x-amz-request-id", id);
    answer
}

async fn whole(mut body: s3s::Body) -> Bytes {
    let mut all = Vec::new();
    while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        if let Ok(piece) = frame.expect("the server reads its own file").into_data() {
            all.extend_from_slice(&piece);
        }
    }
    all.into()
}

/// A response body, which may be cut short.
struct Reply {
    rest: Option<Bytes>,
    /// The announced length.
    length: u64,
    cut: bool,
}

impl Reply {
    fn all(body: Bytes) -> Self {
        Self { length: body.len() as u64, rest: Some(body), cut: false }
    }

    fn cut(body: &[u8], at: usize) -> Self {
        let rest = Bytes::copy_from_slice(&body[..at.min(body.len())]);
        Self { length: body.len() as u64, rest: Some(rest), cut: true }
    }
}

impl Body for Reply {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Ready(match self.rest.take().filter(|rest| !rest.is_empty()) {
            Some(rest) => Some(Ok(Frame::data(rest))),
            None if self.cut => Some(Err(io::Error::other("made to break off"))),
            None => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        !self.cut && self.rest.as_ref().is_none_or(Bytes::is_empty)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.length)
    }
}
