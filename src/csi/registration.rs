//! Getting known to kubelet without a helper beside the driver.

use std::path::{Path, PathBuf};

use tonic::{Request, Response, Status};
use tracing::{error, info};

use super::proto::registration::registration_server::Registration;
use super::proto::registration::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};

/// What kubelet is told when it finds the socket.
#[derive(Clone)]
pub struct Registrar {
    pub driver: String,
    /// The driver's socket as kubelet sees it.
    pub endpoint: String,
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
        } else {
            error!(driver = self.driver, cause = status.error, "kubelet refuses the driver");
        }
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
