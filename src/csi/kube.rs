//! The Kubernetes API, as far as it is needed: reading one object.

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

/// Where a pod finds who it is.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The files there, for errors; a pod has no certificate of its own.
const FILES: OptionNames = OptionNames { ca: "service account", cert: "certificate", key: "key" };
/// For one answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// No object that is asked for is larger.
const LARGEST: usize = 4 << 20;

/// A server of the API, and who asks it.
pub struct Kube {
    base: String,
    /// Read at each use, as it is renewed.
    token: PathBuf,
    ca: PathBuf,
}

impl Kube {
    /// The server of the cluster that this process runs in, if it does and has a token for it; another if
    /// `base` names it.
    pub fn find(base: Option<&str>) -> Option<Self> {
        let account = PathBuf::from(ACCOUNT);
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
        match tokio::time::timeout(PATIENCE, self.ask(path)).await {
            Ok(answer) => answer,
            Err(_) => Err(self.away(format!("{path}: no answer within {PATIENCE:?}"))),
        }
    }

    async fn ask(&self, path: &str) -> Result<Value> {
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(self.trust()?)
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
        let answer = client.request(request).await.map_err(|error| self.away(error.to_string()))?;
        let status = answer.status();
        let body = whole(answer.into_body()).await.map_err(|error| self.away(error))?;
        match status {
            StatusCode::OK => {
                serde_json::from_slice(&body).map_err(|error| self.away(format!("{path}: {error}")))
            }
            StatusCode::NOT_FOUND => {
                Err(Error::bad_input(format!("Kubernetes API: there is no {path}")))
            }
            StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => {
                Err(Error::Refused(format!("Kubernetes API: the driver may not read {path}")))
            }
            other => Err(self.away(format!("{path}: {other}"))),
        }
    }

    fn trust(&self) -> Result<ClientConfig> {
        let ca = self.ca.exists().then(|| self.ca.clone());
        TlsFiles { ca, ..TlsFiles::default() }.config(FILES, &Policy::unrestricted())
    }

    fn away(&self, cause: String) -> Error {
        Error::Unreachable { place: format!("Kubernetes API at {}", self.base), cause }
    }
}

async fn whole(mut body: Incoming) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    loop {
        let frame = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await;
        match frame {
            None => return Ok(bytes),
            Some(Err(error)) => return Err(error.to_string()),
            Some(Ok(frame)) => {
                bytes.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
                if bytes.len() > LARGEST {
                    return Err("the answer is too large".to_owned());
                }
            }
        }
    }
}
