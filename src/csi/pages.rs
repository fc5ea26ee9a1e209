//! What the driver shows over HTTP: whether it lives, whether it is ready, and what it counts.

use std::net::SocketAddr;
use std::sync::Arc;

use hyper::{Method, Response, StatusCode};
use prometheus::Registry;
use tokio_util::task::AbortOnDropHandle;

use super::gate::{Gate, Phase};
use crate::error::{Error, Result};
use crate::scrape;

/// Where everything that is counted is to be found, at the moment.
pub type Registries = Arc<dyn Fn() -> Vec<Registry> + Send + Sync>;

/// Serves the pages until what is answered here is dropped.
pub async fn serve(
    address: SocketAddr,
    gate: Gate,
    registries: Registries,
) -> Result<AbortOnDropHandle<()>> {
    let listener = scrape::listen(address, false).await;
    let listener =
        listener.map_err(|error| Error::bad_input(format!("--http {address}: {error}")))?;
    let answer = move |method: &Method, path: &str| answer(method, path, &gate, &registries);
    Ok(AbortOnDropHandle::new(tokio::spawn(scrape::serve(listener, answer))))
}

fn answer(method: &Method, path: &str, gate: &Gate, registries: &Registries) -> Response<String> {
    match path {
        // Whoever answers lives.
        "/healthz" => scrape::plain(StatusCode::OK, "ok\n".to_owned()),
        "/readyz" => match gate.phase() {
            Phase::Ready => scrape::plain(StatusCode::OK, "ready\n".to_owned()),
            Phase::Starting => unavailable("starting\n"),
            Phase::Draining => unavailable("stopping\n"),
        },
        _ => scrape::metrics(method, path, &scrape::merged(registries())),
    }
}

fn unavailable(text: &str) -> Response<String> {
    scrape::plain(StatusCode::SERVICE_UNAVAILABLE, text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_follows_the_gate_and_life_does_not() {
        let gate = Gate::default();
        let registries: Registries = Arc::new(|| vec![Registry::new()]);
        let status = |path| answer(&Method::GET, path, &gate, &registries).status();
        assert_eq!(
            (status("/healthz"), status("/readyz")),
            (StatusCode::OK, StatusCode::SERVICE_UNAVAILABLE)
        );
        gate.open();
        assert_eq!((status("/readyz"), status("/metrics")), (StatusCode::OK, StatusCode::OK));
        assert_eq!(status("/other"), StatusCode::NOT_FOUND);
    }
}
