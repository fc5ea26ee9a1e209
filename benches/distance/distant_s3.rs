//! An S3 server in this process, with objects in memory, that is as slow as one far away: the first
//! byte of a response comes late, and the bytes of each request have a limited rate.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::ops::Bound;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use anyhow::Result;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::header::{CONTENT_RANGE, ETAG, HeaderMap, LAST_MODIFIED, RANGE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use crate::Distance;

/// Bytes sent at a time.
const PIECE: usize = 256 << 10;
const DATE: &str = "Wed, 01 Jan 2025 00:00:00 GMT";

/// A running server; dropping it stops it.
pub struct DistantS3 {
    address: String,
    state: Arc<State>,
    _runtime: Runtime,
}

struct State {
    distance: Distance,
    objects: Mutex<BTreeMap<String, Object>>,
}

#[derive(Clone)]
struct Object {
    body: Bytes,
    /// User metadata.
    headers: HeaderMap,
}

impl DistantS3 {
    pub fn start(distance: Distance) -> Result<Self> {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let address = format!("http://{}", listener.local_addr()?);
        let state = Arc::new(State { distance, objects: Mutex::default() });
        runtime.spawn(accept(listener, Arc::clone(&state)));
        Ok(Self { address, state, _runtime: runtime })
    }

    /// Returns the address of the bucket.
    pub fn bucket(&self) -> String {
        format!("{}/bucket", self.address)
    }

    /// Returns the keys and sizes of all objects at least this large.
    pub fn keys(&self, at_least: usize) -> Vec<String> {
        let objects = self.state.lock();
        let large = objects.iter().filter(|(_, object)| object.body.len() >= at_least);
        large.map(|(key, _)| key.clone()).collect()
    }
}

impl State {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Object>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn transfer(&self, bytes: usize) -> Duration {
        Duration::from_secs_f64(bytes as f64 / self.distance.rate)
    }

    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Response<PacedBody> {
        let path = request.uri().path().trim_start_matches('/').to_owned();
        let key = path.split_once('/').map_or("", |(_, key)| key).to_owned();
        sleep(self.distance.first_byte).await;
        match *request.method() {
            Method::PUT if !key.is_empty() => self.put(key, request).await,
            Method::DELETE => {
                self.lock().remove(&key);
                self.empty(StatusCode::NO_CONTENT)
            }
            Method::GET if key.is_empty() => self.list(request.uri().query().unwrap_or_default()),
            Method::GET | Method::HEAD if !key.is_empty() => self.get(&key, &request),
            _ => self.empty(StatusCode::OK),
        }
    }

    async fn put(self: Arc<Self>, key: String, request: Request<Incoming>) -> Response<PacedBody> {
        let mut headers = request.headers().clone();
        let names: Vec<_> = headers.keys().cloned().collect();
        for name in names.iter().filter(|name| !name.as_str().starts_with("x-amz-meta-")) {
            headers.remove(name);
        }
        let mut body = Vec::new();
        let mut incoming = request.into_body();
        while let Some(frame) =
            std::future::poll_fn(|cx| Pin::new(&mut incoming).poll_frame(cx)).await
        {
            let Ok(frame) = frame else { return self.empty(StatusCode::BAD_REQUEST) };
            body.extend_from_slice(&frame.into_data().unwrap_or_default());
        }
        sleep(self.transfer(body.len())).await;
        self.lock().insert(key, Object { body: body.into(), headers });
        let mut response = self.empty(StatusCode::OK);
        response.headers_mut().insert(ETAG, hyper::header::HeaderValue::from_static("\"0\""));
        response
    }

    fn get(self: Arc<Self>, key: &str, request: &Request<Incoming>) -> Response<PacedBody> {
        let Some(Object { mut body, headers }) = self.lock().get(key).cloned() else {
            let missing = "<Error><Code>NoSuchKey</Code><Message>no such key</Message></Error>";
            return self.response(StatusCode::NOT_FOUND, missing.into());
        };
        let size = body.len();
        let range = request.headers().get(RANGE).and_then(|range| range.to_str().ok());
        let range = range.and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
        let parse = |(from, to): (&str, &str)| {
            let to = to.parse::<usize>().map_or(size, |last| (last + 1).min(size));
            from.parse::<usize>().ok().filter(|from| *from < to).map(|from| from..to)
        };
        let range = range.and_then(parse);
        if let Some(range) = range.clone() {
            body = body.slice(range);
        }
        if request.method() == Method::HEAD {
            body = Bytes::new();
        }
        let status = if range.is_some() { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK };
        let mut response = self.response(status, body);
        response.headers_mut().extend(headers);
        let date = hyper::header::HeaderValue::from_static(DATE);
        response.headers_mut().insert(LAST_MODIFIED, date);
        if let Some(range) = range
            && let Ok(value) = format!("bytes {}-{}/{size}", range.start, range.end - 1).parse()
        {
            response.headers_mut().insert(CONTENT_RANGE, value);
        }
        response
    }

    fn list(self: Arc<Self>, query: &str) -> Response<PacedBody> {
        let query: BTreeMap<_, _> = url::form_urlencoded::parse(query.as_bytes()).collect();
        let get = |name: &str| query.get(name).map(ToString::to_string).unwrap_or_default();
        if query.contains_key("location") {
            return self.response(StatusCode::OK, "<LocationConstraint/>".into());
        }
        let (prefix, most) = (get("prefix"), get("max-keys").parse().unwrap_or(1000));
        let after = [get("continuation-token"), get("start-after"), get("marker")];
        let after = after.into_iter().max().unwrap_or_default();
        let objects = self.lock();
        let later = objects.range::<str, _>((Bound::Excluded(after.as_str()), Bound::Unbounded));
        let mut found: Vec<_> =
            later.filter(|(key, _)| key.starts_with(&prefix)).take(most + 1).collect();
        let is_truncated = found.len() > most;
        found.truncate(most);
        let mut text = format!("<ListBucketResult><IsTruncated>{is_truncated}</IsTruncated>");
        if let Some((last, _)) = found.last().filter(|_| is_truncated) {
            let _ = write!(text, "<NextContinuationToken>{last}</NextContinuationToken>");
        }
        for (key, Object { body, .. }) in found {
            let (size, date) = (body.len(), "2025-01-01T00:00:00Z");
            let object =
                format!("<Key>{key}</Key><LastModified>{date}</LastModified><Size>{size}</Size>");
            let _ = write!(text, "<Contents>{object}</Contents>");
        }
        drop(objects);
        text.push_str("</ListBucketResult>");
        self.response(StatusCode::OK, text.into())
    }

    fn empty(self: Arc<Self>, status: StatusCode) -> Response<PacedBody> {
        self.response(status, Bytes::new())
    }

    fn response(self: Arc<Self>, status: StatusCode, body: Bytes) -> Response<PacedBody> {
        let mut response = Response::new(PacedBody::new(body, self));
        *response.status_mut() = status;
        response
    }
}

async fn accept(listener: TcpListener, state: Arc<State>) {
    while let Ok((stream, _)) = listener.accept().await {
        let _ = stream.set_nodelay(true);
        let state = Arc::clone(&state);
        tokio::spawn(async move {
            let answer = service_fn(|request| {
                let state = Arc::clone(&state);
                async move { Ok::<_, Infallible>(state.answer(request).await) }
            });
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
        });
    }
}

/// A body that is sent at the rate of one request.
struct PacedBody {
    rest: Bytes,
    due: Instant,
    wait: Pin<Box<Sleep>>,
    state: Arc<State>,
}

impl PacedBody {
    fn new(rest: Bytes, state: Arc<State>) -> Self {
        let due = Instant::now();
        Self { rest, due, wait: Box::pin(sleep_until(due)), state }
    }
}

impl Body for PacedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.rest.is_empty() {
            return Poll::Ready(None);
        }
        // A piece is sent when all of it has had its time.
        let piece = PIECE.min(self.rest.len());
        let due = self.due + self.state.transfer(piece);
        if self.wait.deadline() != due {
            self.wait.as_mut().reset(due);
        }
        ready!(self.wait.as_mut().poll(cx));
        self.due = due;
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(piece)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}
