//! The driver's HTTP endpoints: liveness, readiness and metrics.
//!
//! Probes have their own listener, so that readers of metrics cannot delay them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::body::Bytes;
use hyper::{Method, Response, StatusCode};
use prometheus::Registry;
use tokio_util::task::AbortOnDropHandle;

use super::admission::{Admission, Phase};
use super::registration::RegistrationError;
use crate::error::{Error, Result};
use crate::metrics_http::{self, ConnectionLimits, TextBody};
use crate::mounts::KeeperLink;
use crate::sync::Mutex;

/// Returns the registries of all current metrics.
pub type Registries = Arc<dyn Fn() -> Vec<Registry> + Send + Sync>;

const LIVENESS: &str = "/healthz";
const READINESS: &str = "/readyz";
/// Requests within this time get the same page of metrics: encoding the metrics of a node is
/// expensive.
const MAX_AGE: Duration = Duration::from_millis(250);

/// Serves the probes until the handle is dropped.
pub async fn serve_probes(
    address: SocketAddr,
    admission: Admission,
    registration_error: RegistrationError,
    keeper: Option<Arc<KeeperLink>>,
) -> Result<AbortOnDropHandle<()>> {
    let respond = move |_: &Method, path: &str| {
        let is_unprotected = keeper.as_ref().is_some_and(|keeper| keeper.client().is_none());
        probe(path, &admission, registration_error.cause(), is_unprotected)
    };
    serve("--health", address, LIVENESS, ConnectionLimits::PROBES, respond).await
}

/// Serves the metrics until the handle is dropped.
pub async fn serve_metrics(
    address: SocketAddr,
    registries: Registries,
) -> Result<AbortOnDropHandle<()>> {
    let page = Arc::new(MetricsPage { registries, encoded: Mutex::default() });
    let respond = move |method: &Method, path: &str| page.respond(method, path);
    serve("--http", address, metrics_http::METRICS_PATH, ConnectionLimits::METRICS, respond).await
}

async fn serve(
    option: &str,
    address: SocketAddr,
    page: &str,
    limits: ConnectionLimits,
    respond: impl Fn(&Method, &str) -> Response<TextBody> + Clone + Send + Sync + 'static,
) -> Result<AbortOnDropHandle<()>> {
    let listener = metrics_http::listen(address, page, false).await;
    let listener =
        listener.map_err(|error| Error::bad_input(format!("{option} {address}: {error}")))?;
    Ok(AbortOnDropHandle::new(tokio::spawn(metrics_http::serve(listener, limits, respond))))
}

/// Answers a probe. A driver that kubelet refuses serves its published volumes, but is not ready
/// for more. One without its keeper is ready.
fn probe(
    path: &str,
    admission: &Admission,
    refusal: Option<String>,
    is_unprotected: bool,
) -> Response<TextBody> {
    const UNAVAILABLE: StatusCode = StatusCode::SERVICE_UNAVAILABLE;
    let (status, text) = match (path, admission.phase(), refusal) {
        // A process that answers is alive.
        (LIVENESS, ..) => (StatusCode::OK, "ok\n".to_owned()),
        (READINESS, Phase::Ready, Some(cause)) => {
            (UNAVAILABLE, format!("kubelet refuses to register the driver: {cause}\n"))
        }
        (READINESS, Phase::Ready, None) if is_unprotected => {
            (StatusCode::OK, "ready; the keeper is gone, mounts end with this process\n".to_owned())
        }
        (READINESS, Phase::Ready, None) => (StatusCode::OK, "ready\n".to_owned()),
        (READINESS, Phase::Starting, _) => (UNAVAILABLE, "starting\n".to_owned()),
        (READINESS, Phase::Draining, _) => (UNAVAILABLE, "stopping\n".to_owned()),
        _ => (StatusCode::NOT_FOUND, "not found; there are /healthz and /readyz\n".to_owned()),
    };
    metrics_http::text_page(status, text)
}

/// The metrics page, encoded once for requests at about the same time.
struct MetricsPage {
    registries: Registries,
    encoded: Mutex<Option<(Instant, Bytes)>>,
}

impl MetricsPage {
    fn respond(&self, method: &Method, path: &str) -> Response<TextBody> {
        if path != metrics_http::METRICS_PATH || ![Method::GET, Method::HEAD].contains(method) {
            return metrics_http::respond(method, path, &[]);
        }
        let mut encoded = self.encoded.lock();
        if let Some((at, text)) = &*encoded
            && at.elapsed() < MAX_AGE
        {
            return metrics_http::metrics_page(text.clone());
        }
        match metrics_http::encode(&metrics_http::gather((self.registries)())) {
            Ok(text) => {
                let text = Bytes::from(text);
                *encoded = Some((Instant::now(), text.clone()));
                metrics_http::metrics_page(text)
            }
            Err(error) => {
                metrics_http::text_page(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_follows_admission_and_liveness_does_not() {
        let admission = Admission::default();
        let status = |path| probe(path, &admission, None, false).status();
        assert_eq!(
            (status(LIVENESS), status(READINESS)),
            (StatusCode::OK, StatusCode::SERVICE_UNAVAILABLE)
        );
        admission.open();
        assert_eq!((status(LIVENESS), status(READINESS)), (StatusCode::OK, StatusCode::OK));
        assert_eq!(status("/metrics"), StatusCode::NOT_FOUND);
        let refusal = |path| probe(path, &admission, Some("why".to_owned()), false).status();
        assert_eq!(
            (refusal(LIVENESS), refusal(READINESS)),
            (StatusCode::OK, StatusCode::SERVICE_UNAVAILABLE)
        );
    }

    #[test]
    fn the_metrics_page_has_no_probes_and_is_encoded_once() {
        let asked = Arc::new(Mutex::new(0));
        let count = Arc::clone(&asked);
        let registries: Registries = Arc::new(move || {
            *count.lock() += 1;
            vec![Registry::new()]
        });
        let page = MetricsPage { registries, encoded: Mutex::default() };
        let status = |path| page.respond(&Method::GET, path).status();
        assert_eq!((status("/metrics"), status("/metrics")), (StatusCode::OK, StatusCode::OK));
        assert_eq!(*asked.lock(), 1);
        assert_eq!(
            (status(LIVENESS), status(READINESS)),
            (StatusCode::NOT_FOUND, StatusCode::NOT_FOUND)
        );
    }
}
