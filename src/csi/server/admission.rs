//! Admission of calls: whether the driver accepts them, and which are in progress.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tonic::Status;
use tonic::body::Body;
use tower::{Layer, Service};

/// The Identity service answers at any time: it reports whether the driver is ready.
const ALWAYS_ADMITTED: &str = "/csi.v1.Identity/";

/// The phases of the driver's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Starting,
    Ready,
    Draining,
}

/// Shared by all services of the driver.
#[derive(Clone, Default)]
pub struct Admission {
    phase: Arc<AtomicU8>,
    calls: TaskTracker,
}

impl Admission {
    pub fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Starting,
            1 => Phase::Ready,
            _ => Phase::Draining,
        }
    }

    pub fn is_ready(&self) -> bool {
        self.phase() == Phase::Ready
    }

    /// Accepts calls from now on, unless the driver is stopping.
    pub fn open(&self) {
        let _ = self.phase.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Admits a call, which is in progress until the token is dropped.
    pub fn admit(&self) -> Result<TaskTrackerToken, Status> {
        let token = self.calls.token();
        match self.phase() {
            Phase::Ready => Ok(token),
            Phase::Starting => Err(Status::unavailable("the driver is starting")),
            Phase::Draining => Err(Status::unavailable("the driver is stopping")),
        }
    }

    /// Runs work to completion even if its caller disconnects. The driver does not stop before it
    /// is done.
    pub fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> tokio::task::JoinHandle<T> {
        self.calls.spawn(work)
    }

    /// Refuses new calls and waits for those in progress. Returns how many are left after
    /// `patience`.
    pub async fn drain(&self, patience: Duration) -> usize {
        self.phase.store(2, Ordering::Release);
        self.calls.close();
        match tokio::time::timeout(patience, self.calls.wait()).await {
            Ok(()) => 0,
            Err(_) => self.calls.len(),
        }
    }
}

impl<S> Layer<S> for Admission {
    type Service = AdmittedService<S>;

    fn layer(&self, inner: S) -> AdmittedService<S> {
        AdmittedService { admission: self.clone(), inner }
    }
}

/// A service that is called only if admission is granted.
#[derive(Clone)]
pub struct AdmittedService<S> {
    admission: Admission,
    inner: S,
}

impl<S> Service<Request<Body>> for AdmittedService<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        if request.uri().path().starts_with(ALWAYS_ADMITTED) {
            return Box::pin(self.inner.call(request));
        }
        match self.admission.admit() {
            Ok(call) => {
                let response = self.inner.call(request);
                Box::pin(async move {
                    let response = response.await;
                    drop(call);
                    response
                })
            }
            Err(status) => Box::pin(std::future::ready(Ok(status.into_http()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn calls_are_accepted_only_between_start_and_stop() {
        let admission = Admission::default();
        assert_eq!(admission.admit().unwrap_err().message(), "the driver is starting");
        admission.open();
        let call = admission.admit().unwrap();
        assert_eq!(admission.drain(Duration::from_millis(10)).await, 1);
        assert!(admission.admit().is_err());
        drop(call);
        assert_eq!(admission.drain(Duration::from_secs(5)).await, 0);
        admission.open();
        assert_eq!(admission.phase(), Phase::Draining);
    }
}
