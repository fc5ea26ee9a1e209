//! Connections to a host, directly or through a proxy.
//!
//! Plain HTTP requests go to the proxy with their absolute URI. For TLS, the proxy opens a tunnel
//! to the host.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower::Service;

use super::http::bottom;
use super::proxy::{Proxies, Proxy};
use super::tunnel;
use crate::policy::Policy;

type Cause = Box<dyn std::error::Error + Send + Sync>;
type Stream = MaybeHttpsStream<TokioIo<TcpStream>>;
pub type TcpConnector = HttpConnector<Resolver>;

/// Resolves names to the addresses that the policy allows.
#[derive(Clone)]
pub struct Resolver(pub Arc<Policy>);

impl Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = Cause;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Cause>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Cause>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let policy = Arc::clone(&self.0);
        Box::pin(async move {
            let found = policy.addresses(name.as_str(), 0).await;
            Ok(found?.into_iter())
        })
    }
}

/// Opens the connection for a request. TLS to the host is added by the caller.
#[derive(Clone)]
pub struct ProxyConnector {
    pub tcp: TcpConnector,
    /// The connection to the proxy itself may use TLS.
    pub tls: HttpsConnector<TcpConnector>,
    pub proxies: Arc<Proxies>,
    /// Checks hosts that are IP addresses, since those are not resolved.
    pub policy: Arc<Policy>,
}

/// A connection to a host or to a proxy.
pub struct RoutedStream {
    stream: Stream,
    /// Whether requests are forwarded by a proxy, and need absolute URIs.
    forwards: bool,
}

impl Service<Uri> for ProxyConnector {
    type Response = RoutedStream;
    type Error = Cause;
    type Future = Pin<Box<dyn Future<Output = Result<RoutedStream, Cause>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Cause>> {
        self.tcp.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let way = self.proxies.of(&uri).map_err(Cause::from).and_then(|proxy| {
            let next = proxy.map_or(&uri, Proxy::uri);
            let may = self.policy.check_host(next.host().unwrap_or_default());
            may.map(|()| proxy).map_err(Cause::from)
        });
        match way {
            Err(why) => Box::pin(std::future::ready(Err(why))),
            Ok(None) => {
                let connecting = self.tcp.call(uri);
                Box::pin(async move {
                    let stream = MaybeHttpsStream::Http(connecting.await?);
                    Ok(RoutedStream { stream, forwards: false })
                })
            }
            Ok(Some(proxy)) => {
                let connecting = self.tls.call(proxy.uri().clone());
                let proxy = proxy.clone();
                Box::pin(async move {
                    let stream = connecting.await.map_err(|cause| bottom(&*cause).to_string());
                    let routed = match stream {
                        Ok(stream) => through(&proxy, stream, &uri).await,
                        Err(why) => Err(why),
                    };
                    routed.map_err(|why| format!("{proxy}: {why}").into())
                })
            }
        }
    }
}

/// Prepares a connection to a proxy for requests to `uri`.
async fn through(proxy: &Proxy, mut stream: Stream, uri: &Uri) -> Result<RoutedStream, String> {
    let forwards = uri.scheme() != Some(&http::uri::Scheme::HTTPS);
    if !forwards {
        let target =
            format!("{}:{}", uri.host().unwrap_or_default(), uri.port_u16().unwrap_or(443));
        tunnel::open(&mut TokioIo::new(&mut stream), &target, proxy.authorization()).await?;
    }
    Ok(RoutedStream { stream, forwards })
}

impl Connection for RoutedStream {
    fn connected(&self) -> Connected {
        self.stream.connected().proxy(self.forwards)
    }
}

impl Read for RoutedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl Write for RoutedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, pieces)
    }
}
