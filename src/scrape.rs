//! Pages over HTTP, for those who watch: metrics for Prometheus, and whatever else a program shows.

mod connections;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus::proto::MetricFamily;
use prometheus::{Registry, TextEncoder};
use tokio::net::TcpListener;
use tracing::{debug, info, warn};

pub use connections::Bounds;
use connections::Connections;

/// The page of metrics.
pub const METRICS: &str = "/metrics";
/// Bytes of a request that are read at most.
const REQUEST: usize = 16 << 10;
/// Between two tries to accept, when there are too many open files.
const PAUSE: Duration = Duration::from_millis(200);

/// Listens there, for those who want this page; on another port, if that does as well and this one is
/// taken.
pub async fn listen(address: SocketAddr, page: &str, any_port: bool) -> io::Result<TcpListener> {
    let listener = match TcpListener::bind(address).await {
        Err(_) if any_port => TcpListener::bind((address.ip(), 0)).await?,
        listener => listener?,
    };
    info!("served at http://{}{page}", listener.local_addr()?);
    Ok(listener)
}

/// Text to be answered, which several answers may share.
pub struct Text(Option<Bytes>);

impl<T: Into<Bytes>> From<T> for Text {
    fn from(text: T) -> Self {
        Self(Some(text.into()))
    }
}

impl Body for Text {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.take().map(|text| Ok(Frame::data(text))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.as_ref().map_or(0, |text| text.len() as u64))
    }
}

/// Serves what `answer` says of a method and a path, for as long as it is polled. A connection is for
/// one request, so that none is idle for long.
pub async fn serve<A>(listener: TcpListener, bounds: Bounds, answer: A)
where
    A: Fn(&Method, &str) -> Response<Text> + Clone + Send + Sync + 'static,
{
    let connections = Connections::new(bounds);
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!(%error, "no connection could be accepted");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let answer = answer.clone();
        let answer = service_fn(move |request: Request<Incoming>| {
            let response = answer(request.method(), request.uri().path());
            async move { Ok::<_, Infallible>(response) }
        });
        let serving = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(bounds.lifetime)
            .max_buf_size(REQUEST)
            .keep_alive(false)
            .serve_connection(TokioIo::new(stream), answer);
        connections.add(peer.ip(), async move {
            if let Err(error) = serving.await {
                debug!(%error, "a connection ended early");
            }
        });
    }
}

/// The page of metrics; any other is not there.
pub fn metrics(method: &Method, path: &str, gathered: &[MetricFamily]) -> Response<Text> {
    match (method, path) {
        (&Method::GET | &Method::HEAD, METRICS) => match text(gathered) {
            Ok(text) => page(text),
            Err(error) => plain(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        },
        (_, METRICS) => plain(StatusCode::METHOD_NOT_ALLOWED, "only GET\n".to_owned()),
        _ => plain(StatusCode::NOT_FOUND, "metrics are at /metrics\n".to_owned()),
    }
}

/// Metrics as Prometheus reads them.
pub fn text(gathered: &[MetricFamily]) -> prometheus::Result<String> {
    TextEncoder::new().encode_to_string(gathered)
}

/// A page of metrics.
pub fn page(text: impl Into<Bytes>) -> Response<Text> {
    let mut response = Response::new(Text::from(text));
    let kind = HeaderValue::from_static(prometheus::TEXT_FORMAT);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// What several registries have gathered, as one page: metrics of one name stand together.
pub fn merged(registries: impl IntoIterator<Item = Registry>) -> Vec<MetricFamily> {
    let mut families: BTreeMap<String, MetricFamily> = BTreeMap::new();
    for mut family in registries.into_iter().flat_map(|registry| registry.gather()) {
        match families.get_mut(family.name()) {
            Some(known) => known.mut_metric().append(family.mut_metric()),
            None => {
                families.insert(family.name().to_owned(), family);
            }
        }
    }
    families.into_values().collect()
}

/// A page of plain text.
pub fn plain(status: StatusCode, text: String) -> Response<Text> {
    let mut response = Response::new(Text::from(text));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use prometheus::IntCounter;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;

    async fn get(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn what_is_counted_is_served_as_text() {
        let registry = Registry::new_custom(Some("juicefs".to_owned()), None).unwrap();
        let counter = IntCounter::new("things", "Things").unwrap();
        registry.register(Box::new(counter.clone())).unwrap();
        counter.inc_by(3);
        let listener = listen("127.0.0.1:0".parse().unwrap(), METRICS, false).await.unwrap();
        let address = listener.local_addr().unwrap();
        let page = move |method: &Method, path: &str| metrics(method, path, &registry.gather());
        tokio::spawn(serve(listener, Bounds::METRICS, page));
        let page = get(address, "/metrics").await;
        assert!(page.starts_with("HTTP/1.1 200") && page.contains("text/plain"), "{page}");
        assert!(page.contains("juicefs_things 3"), "{page}");
        assert!(get(address, "/").await.starts_with("HTTP/1.1 404"));
    }

    #[test]
    fn metrics_of_one_name_stand_together() {
        let registries = ["a", "b"].map(|volume| {
            let labels = [("volume".to_owned(), volume.to_owned())].into_iter().collect();
            let registry = Registry::new_custom(None, Some(labels)).unwrap();
            registry.register(Box::new(IntCounter::new("things", "Things").unwrap())).unwrap();
            registry
        });
        let page = text(&merged(registries)).unwrap();
        assert_eq!(page.matches("# TYPE things").count(), 1, "{page}");
        assert!(page.contains("volume=\"a\"") && page.contains("volume=\"b\""), "{page}");
    }

    #[tokio::test]
    async fn another_port_does_only_if_nobody_chose_one() {
        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = taken.local_addr().unwrap();
        assert!(listen(address, METRICS, false).await.is_err());
        let other = listen(address, METRICS, true).await.unwrap();
        assert_ne!(other.local_addr().unwrap(), address);
    }
}
