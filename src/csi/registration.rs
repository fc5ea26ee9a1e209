//! Getting known to kubelet without a helper beside the driver.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tonic::{Request, Response, Status};
use tracing::{error, info};

use super::proto::registration::registration_server::Registration;
use super::proto::registration::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};
use crate::sync::Mutex;

/// Characters of kubelet's words that are kept.
const LONGEST: usize = 1000;

/// Why kubelet refuses the driver, if it does. Shared with whoever says whether the driver is ready.
#[derive(Clone, Default)]
pub struct Refusal(Arc<Mutex<Option<String>>>);

impl Refusal {
    /// Kubelet's words, of its last answer.
    pub fn cause(&self) -> Option<String> {
        self.0.lock().clone()
    }

    fn set(&self, cause: Option<String>) {
        *self.0.lock() = cause;
    }
}

/// What kubelet is told when it finds the socket.
#[derive(Clone)]
pub struct Registrar {
    pub driver: String,
    /// The driver's socket as kubelet sees it.
    pub endpoint: String,
    pub refusal: Refusal,
}

impl Registrar {
    /// Where kubelet looks for the socket.
    pub fn socket(&self, registry: &Path) -> PathBuf {
        registry.join(format!("{}-reg.sock", self.driver))
    }
}

#[tonic::async_trait]
impl Registration for Registrar {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        info!(driver = self.driver, endpoint = self.endpoint, "kubelet asks for the driver");
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
            info!(driver = self.driver, "kubelet has registered the driver");
            self.refusal.set(None);
        } else {
            let cause: String = status.error.chars().take(LONGEST).collect();
            error!(driver = self.driver, cause, "kubelet refuses the driver");
            self.refusal.set(Some(cause));
        }
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
