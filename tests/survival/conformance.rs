//! csi-sanity passes while the driver is killed again and again. A call that is in progress then is made
//! again, as kubelet and the sidecars do, by a proxy: the suite itself makes each call once.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Collected, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{UnixListener, UnixStream};

use crate::csi::Node;
use crate::csi_sanity;
use crate::driver::Keeper;
use crate::support::command::wait;
use crate::support::timeout::within;

const LIMIT: Duration = Duration::from_mins(10);
/// Between two kills of the driver. The suite takes some seconds.
const KILL_PERIOD: Duration = Duration::from_millis(300);
/// How long a call is repeated.
const CALL_LIMIT: Duration = Duration::from_secs(30);
const UNAVAILABLE: &str = "14";

#[test]
fn csi_sanity_passes_while_the_driver_is_killed_and_adopted() {
    let suite = csi_sanity::build();
    within(LIMIT, move || {
        let mut node = Node::start();
        let keeper = Keeper::start(&node);
        assert!(node.stop());
        let secrets = csi_sanity::driver_options(&node);
        let mut options = keeper.option().to_vec();
        options.extend(secrets.iter().map(String::as_str));
        node.restart(&options);
        let proxy = node.path("proxy.sock");
        let _proxy = start_proxy(&proxy, node.path("csi.sock"));
        let output = node.path("sanity.log");
        let mut command = csi_sanity::command(&suite, &node, &proxy);
        let mut running = command.stdout(fs::File::create(&output).unwrap()).spawn().unwrap();
        let mut kills = 0;
        let status = loop {
            if let Some(status) = wait(&mut running, KILL_PERIOD) {
                break status;
            }
            node.kill();
            node.restart(&options);
            kills += 1;
        };
        let output = fs::read_to_string(output).unwrap();
        let summary = csi_sanity::summary(&output);
        println!("{kills} kills: {summary}");
        assert!(status.success() && summary.contains("0 Failed"), "{output}\n{}", node.log());
        assert!(kills > 3, "{output}");
    });
}

/// Accepts calls at a socket and makes them at another, until the driver there answers. Ends with the
/// returned runtime.
fn start_proxy(at: &Path, driver: PathBuf) -> tokio::runtime::Runtime {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let listener = {
        let _within = runtime.enter();
        UnixListener::bind(at).unwrap()
    };
    runtime.spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let driver = driver.clone();
            let service = service_fn(move |request| forward(request, driver.clone()));
            let http2 = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            tokio::spawn(http2.serve_connection(TokioIo::new(stream), service));
        }
    });
    runtime
}

type Reply = Response<BoxBody<Bytes, std::convert::Infallible>>;

async fn forward(request: Request<Incoming>, driver: PathBuf) -> hyper::Result<Reply> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let deadline = Instant::now() + CALL_LIMIT;
    loop {
        let request = Request::from_parts(parts.clone(), Full::new(body.clone()));
        match call(request, &driver).await {
            Ok((head, reply)) => return Ok(joined(head, reply)),
            Err(error) => assert!(Instant::now() < deadline, "{}: {error}", parts.uri),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Makes a call once, over a connection of its own.
async fn call(
    request: Request<Full<Bytes>>,
    driver: &Path,
) -> Result<(http::response::Parts, Collected<Bytes>), String> {
    let text = |error: hyper::Error| error.to_string();
    let stream = UnixStream::connect(driver).await.map_err(|error| error.to_string())?;
    let http2 = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    let (mut sender, connection) = http2.handshake(TokioIo::new(stream)).await.map_err(text)?;
    tokio::spawn(connection);
    let (head, body) = sender.send_request(request).await.map_err(text)?.into_parts();
    let reply = body.collect().await.map_err(text)?;
    let is_unavailable = |headers: &HeaderMap| {
        headers.get("grpc-status").is_some_and(|status| status == UNAVAILABLE)
    };
    if is_unavailable(&head.headers) || reply.trailers().is_some_and(is_unavailable) {
        return Err("unavailable".to_owned());
    }
    Ok((head, reply))
}

fn joined(head: http::response::Parts, reply: Collected<Bytes>) -> Reply {
    let trailers = reply.trailers().cloned();
    let body = Full::new(reply.to_bytes());
    let body = match trailers {
        Some(trailers) => body.with_trailers(std::future::ready(Some(Ok(trailers)))).boxed(),
        // The status is in the headers, which must be the end of the stream.
        None => body.boxed(),
    };
    Response::from_parts(head, body)
}
