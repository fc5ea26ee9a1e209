//! A small HTTP server for metrics and health probes.

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

pub use connections::ConnectionLimits;
use connections::Connections;

/// The path of the metrics page.
pub const METRICS_PATH: &str = "/metrics";
/// Maximum size of a request in bytes.
const MAX_REQUEST: usize = 16 << 10;
/// The pause before accepting again after an error, such as too many open files.
const PAUSE: Duration = Duration::from_millis(200);

/// Listens on an address, or on any port of it if `any_port` is set and the port is in use. Logs
/// the URL of
/// `page`.
pub async fn listen(address: SocketAddr, page: &str, any_port: bool) -> io::Result<TcpListener> {
    let listener = match TcpListener::bind(address).await {
        Err(_) if any_port => TcpListener::bind((address.ip(), 0)).await?,
        listener => listener?,
    };
    info!("serving http://{}{page}", listener.local_addr()?);
    Ok(listener)
}

/// The text of a response. Responses can share it.
pub struct TextBody(Option<Bytes>);

impl<T: Into<Bytes>> From<T> for TextBody {
    fn from(text: T) -> Self {
        Self(Some(text.into()))
    }
}

impl Body for TextBody {
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

/// Serves what `handler` returns for a method and a path, forever. A connection serves one request,
/// so that none is idle for long.
pub async fn serve<A>(listener: TcpListener, limits: ConnectionLimits, handler: A)
where
    A: Fn(&Method, &str) -> Response<TextBody> + Clone + Send + Sync + 'static,
{
    let connections = Connections::new(limits);
    loop {
        let (stream, client) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!(%error, "cannot accept a connection");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let handler = handler.clone();
        let handler = service_fn(move |request: Request<Incoming>| {
            let response = handler(request.method(), request.uri().path());
            async move { Ok::<_, Infallible>(response) }
        });
        let serving = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.lifetime)
            .max_buf_size(MAX_REQUEST)
            .keep_alive(false)
            .serve_connection(TokioIo::new(stream), handler);
        connections.add(client.ip(), async move {
            if let Err(error) = serving.await {
                debug!(%error, "connection closed early");
            }
        });
    }
}

/// Returns the metrics page, or 404 for any other path.
pub fn respond(method: &Method, path: &str, gathered: &[MetricFamily]) -> Response<TextBody> {
    match (method, path) {
        (&Method::GET | &Method::HEAD, METRICS_PATH) => match encode(gathered) {
            Ok(text) => metrics_page(text),
            Err(error) => text_page(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        },
        (_, METRICS_PATH) => text_page(StatusCode::METHOD_NOT_ALLOWED, "only GET\n".to_owned()),
        _ => text_page(StatusCode::NOT_FOUND, "not found; metrics are at /metrics\n".to_owned()),
    }
}

/// Encodes metrics for Prometheus.
pub fn encode(gathered: &[MetricFamily]) -> prometheus::Result<String> {
    TextEncoder::new().encode_to_string(gathered)
}

/// Returns a response with encoded metrics.
pub fn metrics_page(text: impl Into<Bytes>) -> Response<TextBody> {
    let mut response = Response::new(TextBody::from(text));
    let kind = HeaderValue::from_static(prometheus::TEXT_FORMAT);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// Gathers the metrics of several registries, and merges those of the same name.
pub fn gather(registries: impl IntoIterator<Item = Registry>) -> Vec<MetricFamily> {
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

/// Returns a response with plain text.
pub fn text_page(status: StatusCode, text: String) -> Response<TextBody> {
    let mut response = Response::new(TextBody::from(text));
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
        let mut handler = String::new();
        stream.read_to_string(&mut handler).await.unwrap();
        handler
    }

    #[tokio::test]
    async fn metrics_are_served_as_text() {
        let registry = Registry::new_custom(Some("juicefs".to_owned()), None).unwrap();
        let counter = IntCounter::new("things", "Things").unwrap();
        registry.register(Box::new(counter.clone())).unwrap();
        counter.inc_by(3);
        let listener = listen("127.0.0.1:0".parse().unwrap(), METRICS_PATH, false).await.unwrap();
        let address = listener.local_addr().unwrap();
        let page = move |method: &Method, path: &str| respond(method, path, &registry.gather());
        tokio::spawn(serve(listener, ConnectionLimits::METRICS, page));
        let page = get(address, "/metrics").await;
        assert!(page.starts_with("HTTP/1.1 200") && page.contains("text/plain"), "{page}");
        assert!(page.contains("juicefs_things 3"), "{page}");
        assert!(get(address, "/").await.starts_with("HTTP/1.1 404"));
    }

    #[test]
    fn metrics_of_one_name_are_merged() {
        let registries = ["a", "b"].map(|volume| {
            let labels = [("volume".to_owned(), volume.to_owned())].into_iter().collect();
            let registry = Registry::new_custom(None, Some(labels)).unwrap();
            registry.register(Box::new(IntCounter::new("things", "Things").unwrap())).unwrap();
            registry
        });
        let page = encode(&gather(registries)).unwrap();
        assert_eq!(page.matches("# TYPE things").count(), 1, "{page}");
        assert!(page.contains("volume=\"a\"") && page.contains("volume=\"b\""), "{page}");
    }

    #[tokio::test]
    async fn another_port_is_used_only_if_allowed() {
        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = taken.local_addr().unwrap();
        assert!(listen(address, METRICS_PATH, false).await.is_err());
        let other = listen(address, METRICS_PATH, true).await.unwrap();
        assert_ne!(other.local_addr().unwrap(), address);
    }
}
