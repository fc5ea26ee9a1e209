//! What the driver shows over HTTP: whether it lives, whether it is ready, and what it counts.
//!
//! Probes have a listener of their own: whoever reads metrics, or pretends to, holds up none of them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::body::Bytes;
use hyper::{Method, Response, StatusCode};
use prometheus::Registry;
use tokio_util::task::AbortOnDropHandle;

use super::gate::{Gate, Phase};
use super::registration::Refusal;
use crate::error::{Error, Result};
use crate::scrape::{self, Bounds, Text};
use crate::sync::Mutex;

/// Where everything that is counted is to be found, at the moment.
pub type Registries = Arc<dyn Fn() -> Vec<Registry> + Send + Sync>;

const ALIVE: &str = "/healthz";
const READY: &str = "/readyz";
/// A page of metrics is the same for all who ask within this time: a node has many figures.
const FRESH: Duration = Duration::from_millis(250);

/// Serves the probes until what is answered here is dropped.
pub async fn serve_probes(
    address: SocketAddr,
    gate: Gate,
    refusal: Refusal,
) -> Result<AbortOnDropHandle<()>> {
    let answer = move |_: &Method, path: &str| probe(path, &gate, refusal.cause());
    serve("--health", (address, ALIVE), Bounds::PROBES, answer).await
}

/// Serves the metrics until what is answered here is dropped.
pub async fn serve_metrics(
    address: SocketAddr,
    registries: Registries,
) -> Result<AbortOnDropHandle<()>> {
    let page = Arc::new(Page { registries, made: Mutex::default() });
    let answer = move |method: &Method, path: &str| page.answer(method, path);
    serve("--http", (address, scrape::METRICS), Bounds::METRICS, answer).await
}

async fn serve(
    option: &str,
    (address, page): (SocketAddr, &str),
    bounds: Bounds,
    answer: impl Fn(&Method, &str) -> Response<Text> + Clone + Send + Sync + 'static,
) -> Result<AbortOnDropHandle<()>> {
    let listener = scrape::listen(address, page, false).await;
    let listener =
        listener.map_err(|error| Error::bad_input(format!("{option} {address}: {error}")))?;
    Ok(AbortOnDropHandle::new(tokio::spawn(scrape::serve(listener, bounds, answer))))
}

/// A driver that kubelet refuses serves what is published and gets nothing new.
fn probe(path: &str, gate: &Gate, refused: Option<String>) -> Response<Text> {
    const UNAVAILABLE: StatusCode = StatusCode::SERVICE_UNAVAILABLE;
    let (status, text) = match (path, gate.phase(), refused) {
        // Whoever answers lives.
        (ALIVE, ..) => (StatusCode::OK, "ok\n".to_owned()),
        (READY, Phase::Ready, Some(cause)) => {
            (UNAVAILABLE, format!("kubelet refuses the driver: {cause}\n"))
        }
        (READY, Phase::Ready, None) => (StatusCode::OK, "ready\n".to_owned()),
        (READY, Phase::Starting, _) => (UNAVAILABLE, "starting\n".to_owned()),
        (READY, Phase::Draining, _) => (UNAVAILABLE, "stopping\n".to_owned()),
        _ => (StatusCode::NOT_FOUND, "there are /healthz and /readyz\n".to_owned()),
    };
    scrape::plain(status, text)
}

/// The page of metrics, made once for all who ask at the same time.
struct Page {
    registries: Registries,
    made: Mutex<Option<(Instant, Bytes)>>,
}

impl Page {
    fn answer(&self, method: &Method, path: &str) -> Response<Text> {
        if path != scrape::METRICS || ![Method::GET, Method::HEAD].contains(method) {
            return scrape::metrics(method, path, &[]);
        }
        let mut made = self.made.lock();
        if let Some((at, text)) = &*made
            && at.elapsed() < FRESH
        {
            return scrape::page(text.clone());
        }
        match scrape::text(&scrape::merged((self.registries)())) {
            Ok(text) => {
                let text = Bytes::from(text);
                *made = Some((Instant::now(), text.clone()));
                scrape::page(text)
            }
            Err(error) => scrape::plain(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_follows_the_gate_and_life_does_not() {
        let gate = Gate::default();
        let status = |path| probe(path, &gate, None).status();
        assert_eq!(
            (status(ALIVE), status(READY)),
            (StatusCode::OK, StatusCode::SERVICE_UNAVAILABLE)
        );
        gate.open();
        assert_eq!((status(ALIVE), status(READY)), (StatusCode::OK, StatusCode::OK));
        assert_eq!(status("/metrics"), StatusCode::NOT_FOUND);
        let refused = |path| probe(path, &gate, Some("why".to_owned())).status();
        assert_eq!(
            (refused(ALIVE), refused(READY)),
            (StatusCode::OK, StatusCode::SERVICE_UNAVAILABLE)
        );
    }

    #[test]
    fn metrics_have_no_probes_and_are_made_once_for_all_who_ask() {
        let asked = Arc::new(Mutex::new(0));
        let count = Arc::clone(&asked);
        let registries: Registries = Arc::new(move || {
            *count.lock() += 1;
            vec![Registry::new()]
        });
        let page = Page { registries, made: Mutex::default() };
        let status = |path| page.answer(&Method::GET, path).status();
        assert_eq!((status("/metrics"), status("/metrics")), (StatusCode::OK, StatusCode::OK));
        assert_eq!(*asked.lock(), 1);
        assert_eq!((status(ALIVE), status(READY)), (StatusCode::NOT_FOUND, StatusCode::NOT_FOUND));
    }
}
