//! The gate that every call goes through: whether calls are taken, and which are still under way.

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

/// Calls of this service are answered at any time: they say how far things are.
const ALWAYS: &str = "/csi.v1.Identity/";

/// How far the program is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Starting,
    Ready,
    Draining,
}

/// Shared by all services of the program.
#[derive(Clone, Default)]
pub struct Gate {
    phase: Arc<AtomicU8>,
    calls: TaskTracker,
}

impl Gate {
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

    /// From now on calls are taken, unless it was closed already.
    pub fn open(&self) {
        let _ = self.phase.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire);
    }

    /// A call begins; it lasts as long as what is answered here.
    pub fn enter(&self) -> Result<TaskTrackerToken, Status> {
        let token = self.calls.token();
        match self.phase() {
            Phase::Ready => Ok(token),
            Phase::Starting => Err(Status::unavailable("the driver is starting")),
            Phase::Draining => Err(Status::unavailable("the driver is stopping")),
        }
    }

    /// Runs what must come to its end even if its caller goes away; the end of the program waits
    /// for it.
    pub fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> tokio::task::JoinHandle<T> {
        self.calls.spawn(work)
    }

    /// Takes no more calls, and waits for those under way; answers how many are left after
    /// `patience`.
    pub async fn close(&self, patience: Duration) -> usize {
        self.phase.store(2, Ordering::Release);
        self.calls.close();
        match tokio::time::timeout(patience, self.calls.wait()).await {
            Ok(()) => 0,
            Err(_) => self.calls.len(),
        }
    }
}

impl<S> Layer<S> for Gate {
    type Service = Gated<S>;

    fn layer(&self, inner: S) -> Gated<S> {
        Gated { gate: self.clone(), inner }
    }
}

/// A service behind the gate.
#[derive(Clone)]
pub struct Gated<S> {
    gate: Gate,
    inner: S,
}

impl<S> Service<Request<Body>> for Gated<S>
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
        if request.uri().path().starts_with(ALWAYS) {
            return Box::pin(self.inner.call(request));
        }
        match self.gate.enter() {
            Ok(call) => {
                let answer = self.inner.call(request);
                Box::pin(async move {
                    let answer = answer.await;
                    drop(call);
                    answer
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
    async fn calls_are_taken_only_between_the_start_and_the_end() {
        let gate = Gate::default();
        assert_eq!(gate.enter().unwrap_err().message(), "the driver is starting");
        gate.open();
        let call = gate.enter().unwrap();
        assert_eq!(gate.close(Duration::from_millis(10)).await, 1);
        assert!(gate.enter().is_err());
        drop(call);
        assert_eq!(gate.close(Duration::from_secs(5)).await, 0);
        gate.open();
        assert_eq!(gate.phase(), Phase::Draining);
    }
}
