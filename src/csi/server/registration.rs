//! The plugin registration service of kubelet, so that no registrar sidecar is needed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tonic::{Request, Response, Status};
use tracing::{error, info};

use crate::csi::proto::registration::registration_server::Registration;
use crate::csi::proto::registration::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};
use crate::sync::Mutex;

/// How many characters of kubelet's message are kept.
const MAX_MESSAGE: usize = 1000;

/// Why kubelet refuses the driver, if it does. The readiness probe reports it.
#[derive(Clone, Default)]
pub struct RegistrationError(Arc<Mutex<Option<String>>>);

impl RegistrationError {
    /// Returns the message of kubelet's last response, if it was a refusal.
    pub fn cause(&self) -> Option<String> {
        self.0.lock().clone()
    }

    fn set(&self, cause: Option<String>) {
        *self.0.lock() = cause;
    }
}

/// Describes the driver to kubelet.
#[derive(Clone)]
pub struct Registrar {
    pub driver: String,
    /// The driver's socket as kubelet sees it.
    pub endpoint: String,
    pub registration_error: RegistrationError,
}

impl Registrar {
    /// Returns the path where kubelet looks for the registration socket.
    pub fn socket(&self, registry: &Path) -> PathBuf {
        registry.join(format!("{}-reg.sock", self.driver))
    }
}

#[tonic::async_trait]
impl Registration for Registrar {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        info!(driver = self.driver, endpoint = self.endpoint, "kubelet found the driver");
        Ok(Response::new(PluginInfo {
            r#type: "CSIPlugin".to_owned(),
            name: self.driver.clone(),
            endpoint: self.endpoint.clone(),
            supported_versions: vec!["1.0.0".to_owned()],
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let status = request.into_inner();
        if status.plugin_registered {
            info!(driver = self.driver, "kubelet registered the driver");
            self.registration_error.set(None);
        } else {
            let cause: String = status.error.chars().take(MAX_MESSAGE).collect();
            error!(driver = self.driver, cause, "kubelet refuses to register the driver");
            self.registration_error.set(Some(cause));
        }
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
