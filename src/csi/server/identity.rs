//! The Identity service: name, version, capabilities and readiness of the driver.

use tonic::{Request, Response, Status};

use super::admission::Admission;
use crate::csi::proto::csi::identity_server::Identity;
use crate::csi::proto::csi::plugin_capability::service::Type as Service;
use crate::csi::proto::csi::plugin_capability::volume_expansion::Type as Expansion;
use crate::csi::proto::csi::plugin_capability::{self, Type};
use crate::csi::proto::csi::{
    GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoRequest,
    GetPluginInfoResponse, PluginCapability, ProbeRequest, ProbeResponse,
};
use crate::csi::settings::Mode;

pub struct IdentityService {
    pub driver: String,
    pub mode: Mode,
    pub admission: Admission,
}

#[tonic::async_trait]
impl Identity for IdentityService {
    async fn get_plugin_info(
        &self,
        _: Request<GetPluginInfoRequest>,
    ) -> Result<Response<GetPluginInfoResponse>, Status> {
        Ok(Response::new(GetPluginInfoResponse {
            name: self.driver.clone(),
            vendor_version: env!("CARGO_PKG_VERSION").to_owned(),
            ..GetPluginInfoResponse::default()
        }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<GetPluginCapabilitiesRequest>,
    ) -> Result<Response<GetPluginCapabilitiesResponse>, Status> {
        let service =
            |service: Service| Type::Service(plugin_capability::Service { r#type: service.into() });
        let expansion = |how: Expansion| {
            Type::VolumeExpansion(plugin_capability::VolumeExpansion { r#type: how.into() })
        };
        let mut types = Vec::new();
        if self.mode.has_controller() {
            types.push(service(Service::ControllerService));
        }
        // The size of a volume is its quota, so a volume grows while it is in use.
        types.push(expansion(Expansion::Online));
        let capabilities =
            types.into_iter().map(|one| PluginCapability { r#type: Some(one) }).collect();
        Ok(Response::new(GetPluginCapabilitiesResponse { capabilities }))
    }

    /// Reports whether calls are accepted, and not whether kubelet has registered the driver: a
    /// restart would not help, and would interrupt the volumes in use.
    async fn probe(&self, _: Request<ProbeRequest>) -> Result<Response<ProbeResponse>, Status> {
        Ok(Response::new(ProbeResponse { ready: Some(self.admission.is_ready()) }))
    }
}
