//! The Identity service: who the driver is, what it can do, how far it is.

use tonic::{Request, Response, Status};

use super::gate::Gate;
use super::program::Mode;
use super::proto::csi::identity_server::Identity;
use super::proto::csi::plugin_capability::service::Type as Service;
use super::proto::csi::plugin_capability::volume_expansion::Type as Expansion;
use super::proto::csi::plugin_capability::{self, Type};
use super::proto::csi::{
    GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoRequest,
    GetPluginInfoResponse, PluginCapability, ProbeRequest, ProbeResponse,
};

pub struct Introduction {
    pub driver: String,
    pub mode: Mode,
    pub gate: Gate,
}

#[tonic::async_trait]
impl Identity for Introduction {
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
        // A quota is all there is to a size, so a volume grows while it is in use.
        types.push(expansion(Expansion::Online));
        let capabilities =
            types.into_iter().map(|one| PluginCapability { r#type: Some(one) }).collect();
        Ok(Response::new(GetPluginCapabilitiesResponse { capabilities }))
    }

    /// Whether calls are taken, and not whether kubelet has registered the driver: who restarts a
    /// driver for this answer would end the volumes that it serves.
    async fn probe(&self, _: Request<ProbeRequest>) -> Result<Response<ProbeResponse>, Status> {
        Ok(Response::new(ProbeResponse { ready: Some(self.gate.is_ready()) }))
    }
}
