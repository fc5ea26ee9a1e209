//! Pages over HTTP, for those who watch: metrics for Prometheus, and whatever else a program shows.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus::proto::MetricFamily;
use prometheus::{Registry, TextEncoder};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tracing::{debug, info, warn};

/// Scrapes at the same time; who scrapes is one server, perhaps two.
const CONNECTIONS: usize = 16;
/// For a request to arrive.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two tries to accept, when there are too many open files.
const PAUSE: Duration = Duration::from_millis(200);

/// Listens there; on another port, if that does as well and this one is taken.
pub async fn listen(address: SocketAddr, any_port: bool) -> io::Result<TcpListener> {
    let listener = match TcpListener::bind(address).await {
        Err(_) if any_port => TcpListener::bind((address.ip(), 0)).await?,
        listener => listener?,
    };
    info!("metrics are served at http://{}/metrics", listener.local_addr()?);
    Ok(listener)
}

/// Serves what `answer` says of a method and a path, for as long as it is polled.
pub async fn serve<A>(listener: TcpListener, answer: A)
where
    A: Fn(&Method, &str) -> Response<String> + Clone + Send + Sync + 'static,
{
    static FREE: Semaphore = Semaphore::const_new(CONNECTIONS);
    loop {
        let Ok(permit) = FREE.acquire().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                warn!(%error, "metrics: no connection could be accepted");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let answer = answer.clone();
        let answer = service_fn(move |request: Request<Incoming>| {
            let response = answer(request.method(), request.uri().path());
            async move { Ok::<_, Infallible>(response) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(PATIENCE)
            .serve_connection(TokioIo::new(stream), answer);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                debug!(%error, "metrics: a connection ended early");
            }
            drop(permit);
        });
    }
}

/// The page of metrics; any other is not there.
pub fn metrics(method: &Method, path: &str, gathered: &[MetricFamily]) -> Response<String> {
    match (method, path) {
        (&Method::GET | &Method::HEAD, "/metrics") => {
            match TextEncoder::new().encode_to_string(gathered) {
                Ok(text) => {
                    let mut response = Response::new(text);
                    let kind = HeaderValue::from_static(prometheus::TEXT_FORMAT);
                    response.headers_mut().insert(CONTENT_TYPE, kind);
                    response
                }
                Err(error) => plain(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
            }
        }
        (_, "/metrics") => plain(StatusCode::METHOD_NOT_ALLOWED, "only GET\n".to_owned()),
        _ => plain(StatusCode::NOT_FOUND, "metrics are at /metrics\n".to_owned()),
    }
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
pub fn plain(status: StatusCode, text: String) -> Response<String> {
    let mut response = Response::new(text);
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
        let listener = listen("127.0.0.1:0".parse().unwrap(), false).await.unwrap();
        let address = listener.local_addr().unwrap();
        let page = move |method: &Method, path: &str| metrics(method, path, &registry.gather());
        tokio::spawn(serve(listener, page));
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
        let page = metrics(&Method::GET, "/metrics", &merged(registries)).into_body();
        assert_eq!(page.matches("# TYPE things").count(), 1, "{page}");
        assert!(page.contains("volume=\"a\"") && page.contains("volume=\"b\""), "{page}");
    }

    #[tokio::test]
    async fn another_port_does_only_if_nobody_chose_one() {
        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = taken.local_addr().unwrap();
        assert!(listen(address, false).await.is_err());
        let other = listen(address, true).await.unwrap();
        assert_ne!(other.local_addr().unwrap(), address);
    }
}
