//! The HTTP client below the SDK: HTTP/1.1, pooled connections, TLS with what the address says, and
//! the proxy that the environment names.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, SharedHttpClient, SharedHttpConnector, http_client_fn,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_types::body::SdkBody;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::legacy::connect::{Connect, HttpConnector as TcpConnector};
use hyper_util::client::legacy::{Client, Error as ClientError};
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::ClientConfig;

use crate::error::{Error, Result};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Below what load balancers in front of stores allow, so that they are rarely the first to close.
const IDLE_TIMEOUT: Duration = Duration::from_secs(50);

/// A client for requests to `url` and whatever else is asked with its credentials.
pub fn client(url: &url::Url, tls: ClientConfig) -> Result<SharedHttpClient> {
    let mut tcp = TcpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    tcp.set_keepalive(Some(IDLE_TIMEOUT));
    let uri: http::Uri = url
        .as_str()
        .parse()
        .map_err(|error| Error::BadInput(format!("address of the bucket: {error}")))?;
    let proxy = Matcher::from_env().intercept(&uri).filter(|_| !is_loopback(url));
    let connector = match proxy {
        Some(proxy) => {
            let tunnel = Tunnel::new(proxy.uri().clone(), tcp);
            match proxy.basic_auth() {
                Some(auth) => shared(secured(tunnel.with_auth(auth.clone()), tls)),
                None => shared(secured(tunnel, tls)),
            }
        }
        None => shared(secured(tcp, tls)),
    };
    Ok(http_client_fn(move |_, _| connector.clone()))
}

/// What is on this machine is never asked through a proxy, as in the Go client.
fn is_loopback(url: &url::Url) -> bool {
    match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

fn secured<C>(inner: C, tls: ClientConfig) -> HttpsConnector<C> {
    HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http()
        .enable_http1()
        .wrap_connector(inner)
}

fn shared<C>(connector: C) -> SharedHttpConnector
where
    C: Connect + Clone + Send + Sync + 'static,
{
    let pool = Client::builder(TokioExecutor::new())
        .pool_idle_timeout(IDLE_TIMEOUT)
        .pool_timer(TokioTimer::new())
        .build(connector);
    SharedHttpConnector::new(Pool(pool))
}

/// Connections that are kept for the next request.
struct Pool<C>(Client<C, SdkBody>);

impl<C> fmt::Debug for Pool<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pool")
    }
}

impl<C> HttpConnector for Pool<C>
where
    C: Connect + Clone + Send + Sync + 'static,
{
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let request = match request.try_into_http1x() {
            Ok(request) => request,
            Err(error) => {
                return HttpConnectorFuture::ready(Err(ConnectorError::user(error.into())));
            }
        };
        let answer = self.0.request(request);
        HttpConnectorFuture::new(async move {
            let answer = answer.await.map_err(|error| failure(&error))?.map(SdkBody::from_body_1_x);
            HttpResponse::try_from(answer)
                .map_err(|error| ConnectorError::other(error.into(), None))
        })
    }
}

/// Says what went wrong at the bottom: the layers above it only say that something did.
fn failure(error: &ClientError) -> ConnectorError {
    let mut cause: &dyn StdError = error;
    while let Some(below) = cause.source() {
        cause = below;
    }
    let what = if error.is_connect() { "cannot connect: " } else { "" };
    ConnectorError::io(format!("{what}{cause}").into())
}
