//! The HTTP client below the SDK: HTTP/1.1, pooled connections, TLS as the bucket URL specifies,
//! and the proxies of the environment.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, SharedHttpClient, SharedHttpConnector, http_client_fn,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_types::body::SdkBody;
use http::header::{CONTENT_TYPE, PROXY_AUTHORIZATION};
use http::{Response, StatusCode, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::{Client, Error as ClientError};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::ClientConfig;
use tokio::sync::Semaphore;

use super::connector::{ProxyConnector, Resolver, TcpConnector};
use super::proxy::{Proxies, Proxy};
use super::response_limit::ResponseLimit;
use crate::descriptors;
use crate::error::{Error, Result};
use crate::policy::Policy;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Shorter than the idle timeout of load balancers in front of stores, so that they rarely close
/// first.
const IDLE_TIMEOUT: Duration = Duration::from_secs(50);

/// Headers of a response; S3 has a dozen or two, and as many user-defined ones.
const MAX_HEADERS: usize = 128;

/// Bytes of a response before its body, and of the body that are read at once.
const MAX_HEAD: usize = 256 << 10;

/// Creates a client for requests to `url`, and for other requests with the same credentials.
pub fn client(
    url: &url::Url,
    tls: ClientConfig,
    proxies: Proxies,
    policy: &Arc<Policy>,
) -> Result<SharedHttpClient> {
    let mut tcp = TcpConnector::new_with_resolver(Resolver(Arc::clone(policy)));
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    tcp.set_keepalive(Some(IDLE_TIMEOUT));
    let uri: Uri = url
        .as_str()
        .parse()
        .map_err(|error| Error::BadInput(format!("address of the bucket: {error}")))?;
    proxies.of(&uri).map_err(Error::BadInput)?;
    let proxies = Arc::new(proxies);
    let via = ProxyConnector {
        tls: secured(tcp.clone(), tls.clone()),
        tcp,
        proxies: Arc::clone(&proxies),
        policy: Arc::clone(policy),
    };
    let connections = descriptors::connections();
    let client = Client::builder(TokioExecutor::new())
        .pool_idle_timeout(IDLE_TIMEOUT)
        .pool_max_idle_per_host(connections)
        .pool_timer(TokioTimer::new())
        .http1_max_headers(MAX_HEADERS)
        .http1_max_buf_size(MAX_HEAD)
        .build(secured(via, tls));
    let pool = SharedHttpConnector::new(Pool {
        client,
        proxies,
        permits: Arc::new(Semaphore::new(connections)),
    });
    Ok(http_client_fn(move |_, _| pool.clone()))
}

fn secured<C>(inner: C, tls: ClientConfig) -> HttpsConnector<C> {
    HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http()
        .enable_http1()
        .wrap_connector(inner)
}

/// A connection pool.
struct Pool {
    client: Client<HttpsConnector<ProxyConnector>, SdkBody>,
    proxies: Arc<Proxies>,
    /// Limits concurrent requests: each uses a connection until its response has ended.
    permits: Arc<Semaphore>,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pool")
    }
}

impl Pool {
    /// Returns the proxy that forwards a plain HTTP request; a tunnel does not see requests.
    fn forwarder(&self, uri: &Uri) -> Option<&Proxy> {
        // An invalid proxy is reported when connecting.
        self.proxies.of(uri).ok().flatten().filter(|_| uri.scheme_str() == Some("http"))
    }
}

impl HttpConnector for Pool {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let mut request = match request.try_into_http1x() {
            Ok(request) => request,
            Err(error) => {
                return HttpConnectorFuture::ready(Err(ConnectorError::user(error.into())));
            }
        };
        let proxy = self.forwarder(request.uri()).cloned();
        if let Some(authorization) = proxy.as_ref().and_then(Proxy::authorization) {
            request.headers_mut().insert(PROXY_AUTHORIZATION, authorization.clone());
        }
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let (client, permits) = (self.client.clone(), Arc::clone(&self.permits));
        HttpConnectorFuture::new(async move {
            // The semaphore is never closed, so this cannot fail.
            let permit = permits.acquire_owned().await.ok();
            let answer = client.request(request).await.map_err(|error| failure(&error))?;
            if let Some(proxy) = proxy.filter(|_| is_of_proxy(&answer)) {
                let what = format!("through {proxy}: {}", answer.status());
                return Err(ConnectorError::io(what.into()));
            }
            let answer = ResponseLimit::of(&method, &uri, &answer)
                .bind(answer, permit)
                .map_err(ConnectorError::io)?;
            HttpResponse::try_from(answer.map(SdkBody::from_body_1_x))
                .map_err(|error| ConnectorError::other(error.into(), None))
        })
    }
}

/// Whether a response comes from a proxy or gateway and not from the store: text for people.
fn is_of_proxy<B>(answer: &Response<B>) -> bool {
    let kind = answer.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let is_text =
        kind.is_some_and(|kind| kind.starts_with("text/html") || kind.starts_with("text/plain"));
    match answer.status() {
        StatusCode::PROXY_AUTHENTICATION_REQUIRED => true,
        // These are valid responses of a store, whatever their content type.
        StatusCode::NOT_FOUND | StatusCode::RANGE_NOT_SATISFIABLE => false,
        status => is_text && (status.is_client_error() || status.is_server_error()),
    }
}

/// Reports the root cause: the layers above only say that something failed.
fn failure(error: &ClientError) -> ConnectorError {
    if let Some(forbidden @ Error::Forbidden(_)) = bottom(error).downcast_ref() {
        return ConnectorError::user(forbidden.clone().into());
    }
    let what = if error.is_connect() { "cannot connect: " } else { "" };
    ConnectorError::io(format!("{what}{}", bottom(error)).into())
}

/// Returns the root cause of an error.
pub fn bottom<'a>(error: &'a (dyn StdError + 'static)) -> &'a (dyn StdError + 'static) {
    let mut cause = error;
    while let Some(below) = cause.source() {
        cause = below;
    }
    cause
}
