//! Credentials of requests: explicit keys, keys from the environment, credentials of the platform,
//! or none.

use aws_config::ecs::EcsCredentialsProvider;
use aws_config::imds::credentials::ImdsCredentialsProvider;
use aws_config::meta::credentials::CredentialsProviderChain;
use aws_config::profile::ProfileFileCredentialsProvider;
use aws_config::provider_config::ProviderConfig;
use aws_config::web_identity_token::WebIdentityTokenCredentialsProvider;
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_sdk_s3::config::Region;
use aws_smithy_runtime_api::client::http::SharedHttpClient;

use super::address::{Lookup, Service};
use crate::object::Spec;

/// The access key that requests no signature.
const ANONYMOUS: &str = "anonymous";

/// Environment variables for access key, secret key and session token, most specific first.
const AWS: [&str; 3] = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"];
const MINIO: [&str; 3] = ["MINIO_ACCESS_KEY", "MINIO_SECRET_KEY", ""];
const OSS: [&str; 3] = ["ALICLOUD_ACCESS_KEY_ID", "ALICLOUD_ACCESS_KEY_SECRET", "SECURITY_TOKEN"];
const SCALEWAY: [&str; 3] = ["SCW_ACCESS_KEY", "SCW_SECRET_KEY", ""];
const EOS: [&str; 3] = ["EOS_ACCESS_KEY", "EOS_SECRET_KEY", "EOS_TOKEN"];
const COS: [&str; 3] = ["COS_SECRETID", "COS_SECRETKEY", ""];
const OBS: [&str; 3] = ["HWCLOUD_ACCESS_KEY", "HWCLOUD_SECRET_KEY", "HWCLOUD_SECURITY_TOKEN"];
const ANY: [&str; 3] = ["ACCESS_KEY", "SECRET_KEY", "SESSION_TOKEN"];

/// Variables that a platform sets if it provides credentials.
const PLATFORM: [&str; 3] = [
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
];

/// Where the keys come from.
pub enum CredentialSource {
    Given(Credentials),
    /// Looked up when first needed, and again when they expire.
    Platform,
    Anonymous,
}

impl CredentialSource {
    pub fn of(spec: &Spec, service: Service, env: Lookup<'_>) -> Self {
        if spec.access_key == ANONYMOUS {
            return Self::Anonymous;
        }
        if !spec.access_key.is_empty() {
            let token = Some(spec.session_token.expose()).filter(|token| !token.is_empty());
            return Self::given(&spec.access_key, spec.secret_key.expose(), token);
        }
        let names = match service {
            Service::Minio => [MINIO, AWS, ANY],
            Service::Oss => [OSS, AWS, ANY],
            Service::Scaleway => [SCALEWAY, AWS, ANY],
            Service::Eos => [EOS, AWS, ANY],
            Service::Cos => [COS, AWS, ANY],
            Service::Obs => [OBS, AWS, ANY],
            _ => [AWS, AWS, ANY],
        };
        for [access, secret, token] in names {
            if let (Some(access), Some(secret)) = (env(access), env(secret)) {
                return Self::given(&access, &secret, env(token).as_deref());
            }
        }
        let is_set = |name: &&str| env(name).is_some();
        let is_there = spec.instance_credentials || has_profile(env) || PLATFORM.iter().any(is_set);
        if is_there && spec.policy.allows_instance_credentials() {
            return Self::Platform;
        }
        Self::Anonymous
    }

    fn given(access: &str, secret: &str, token: Option<&str>) -> Self {
        Self::Given(Credentials::new(access, secret, token.map(str::to_owned), None, "given"))
    }

    /// Returns the credentials provider for the SDK, or `None` if requests are not signed.
    pub fn provider(
        &self,
        http: &SharedHttpClient,
        region: &str,
        instance_credentials: bool,
    ) -> Option<SharedCredentialsProvider> {
        match self {
            Self::Given(keys) => Some(SharedCredentialsProvider::new(keys.clone())),
            Self::Anonymous => None,
            Self::Platform => Some(platform(http, region, instance_credentials)),
        }
    }
}

fn platform(http: &SharedHttpClient, region: &str, instance: bool) -> SharedCredentialsProvider {
    let config = ProviderConfig::without_region()
        .with_region(Some(Region::new(region.to_owned())))
        .with_http_client(http.clone());
    let profile = ProfileFileCredentialsProvider::builder().configure(&config).build();
    let token = WebIdentityTokenCredentialsProvider::builder().configure(&config).build();
    let container = EcsCredentialsProvider::builder().configure(&config).build();
    let chain = CredentialsProviderChain::first_try("profile", profile)
        .or_else("web identity", token)
        .or_else("container", container);
    // Only on request: on a machine without the metadata service, the request could go to any host
    // at that address.
    if !instance {
        return SharedCredentialsProvider::new(chain);
    }
    let machine = ImdsCredentialsProvider::builder().configure(&config).build();
    SharedCredentialsProvider::new(chain.or_else("instance", machine))
}

fn has_profile(env: Lookup<'_>) -> bool {
    let file = env("AWS_SHARED_CREDENTIALS_FILE")
        .or_else(|| env("HOME").map(|home| format!("{home}/.aws/credentials")));
    env("AWS_PROFILE").is_some() || file.is_some_and(|file| std::path::Path::new(&file).exists())
}
