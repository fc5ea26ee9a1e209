//! A client of the Kubernetes API that reads single objects.

use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use hyper::body::{Body, Incoming};
use hyper::header::{ACCEPT, AUTHORIZATION};
use hyper::{Request, StatusCode};
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use rustls::ClientConfig;
use serde_json::Value;

use crate::error::{Error, Result};
use crate::policy::Policy;
use crate::tls::{OptionNames, TlsFiles};

/// Where a pod finds its service account.
const SERVICE_ACCOUNT_DIR: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The names of those files in errors. A pod has no client certificate.
const FILE_NAMES: OptionNames =
    OptionNames { ca: "service account", cert: "certificate", key: "key" };
/// The time limit of one request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// No claim or node object is larger.
const MAX_RESPONSE: usize = 4 << 20;

/// The address of the API server and the credentials for it.
pub struct KubeApi {
    base: String,
    /// Read for each request, as kubelet renews it.
    token: PathBuf,
    ca: PathBuf,
}

impl KubeApi {
    /// Returns the API server at `base`, or that of the surrounding cluster. `None` if this process
    /// runs in no cluster or has no token.
    pub fn find(base: Option<&str>) -> Option<Self> {
        let account = PathBuf::from(SERVICE_ACCOUNT_DIR);
        let (token, ca) = (account.join("token"), account.join("ca.crt"));
        let base = if let Some(base) = base {
            base.trim_end_matches('/').to_owned()
        } else {
            let host = std::env::var("KUBERNETES_SERVICE_HOST").ok().filter(|_| token.exists())?;
            let port = std::env::var("KUBERNETES_SERVICE_PORT").unwrap_or("443".to_owned());
            let host = if host.contains(':') { format!("[{host}]") } else { host };
            format!("https://{host}:{port}")
        };
        Some(Self { base, token, ca })
    }

    pub async fn claim(&self, namespace: &str, name: &str) -> Result<Value> {
        self.read(&format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}")).await
    }

    pub async fn node(&self, name: &str) -> Result<Value> {
        self.read(&format!("/api/v1/nodes/{name}")).await
    }

    async fn read(&self, path: &str) -> Result<Value> {
        match tokio::time::timeout(TIMEOUT, self.request(path)).await {
            Ok(response) => response,
            Err(_) => Err(self.unreachable(format!("{path}: no response within {TIMEOUT:?}"))),
        }
    }

    async fn request(&self, path: &str) -> Result<Value> {
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(self.tls_config()?)
            .https_or_http()
            .enable_http1()
            .build();
        let client = Client::builder(TokioExecutor::new()).build::<_, String>(connector);
        let mut request =
            Request::get(format!("{}{path}", self.base)).header(ACCEPT, "application/json");
        if let Ok(token) = std::fs::read_to_string(&self.token) {
            request = request.header(AUTHORIZATION, format!("Bearer {}", token.trim()));
        }
        let request = request
            .body(String::new())
            .map_err(|error| Error::bad_input(format!("Kubernetes API {path}: {error}")))?;
        let response =
            client.request(request).await.map_err(|error| self.unreachable(error.to_string()))?;
        let status = response.status();
        let body =
            read_body(response.into_body()).await.map_err(|error| self.unreachable(error))?;
        match status {
            StatusCode::OK => serde_json::from_slice(&body)
                .map_err(|error| self.unreachable(format!("{path}: {error}"))),
            StatusCode::NOT_FOUND => {
                Err(Error::bad_input(format!("Kubernetes API: {path} not found")))
            }
            StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => Err(Error::Refused(format!(
                "Kubernetes API: the driver is not allowed to read {path}"
            ))),
            other => Err(self.unreachable(format!("{path}: {other}"))),
        }
    }

    fn tls_config(&self) -> Result<ClientConfig> {
        let ca = self.ca.exists().then(|| self.ca.clone());
        TlsFiles { ca, ..TlsFiles::default() }.config(FILE_NAMES, &Policy::unrestricted())
    }

    fn unreachable(&self, cause: String) -> Error {
        Error::Unreachable { place: format!("Kubernetes API at {}", self.base), cause }
    }
}

async fn read_body(mut body: Incoming) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    loop {
        let frame = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await;
        match frame {
            None => return Ok(bytes),
            Some(Err(error)) => return Err(error.to_string()),
            Some(Ok(frame)) => {
                bytes.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
                if bytes.len() > MAX_RESPONSE {
                    return Err("the response is too large".to_owned());
                }
            }
        }
    }
}
