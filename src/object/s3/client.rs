//! The SDK client of one bucket, created when it is first needed, since its region may have to be
//! requested.

use aws_sdk_s3::config::{
    BehaviorVersion, Config, Region, RequestChecksumCalculation, ResponseChecksumValidation,
    StalledStreamProtectionConfig,
};
use aws_sdk_s3::{Client, config};
use aws_smithy_runtime_api::client::http::SharedHttpClient;
use aws_smithy_types::retry::RetryConfig;
use aws_smithy_types::timeout::TimeoutConfig;
use tokio::sync::OnceCell;
use url::Url;

use super::address::{Address, DEFAULT_REGION, Lookup, Service};
use super::credentials::CredentialSource;
use super::failure::Failure;
use super::http;
use super::proxy::Proxies;
use crate::error::{Error, Result};
use crate::object::Spec;
use crate::policy::Policy;
use crate::tls::{OptionNames, TlsFiles};

/// The names of the TLS options in a bucket URL.
const OPTIONS: OptionNames = OptionNames { ca: "ca-certs", cert: "ssl-cert", key: "ssl-key" };

/// Where the location of a bucket is requested: the AWS partitions do not know each other.
const REGIONS: [&str; 2] = [DEFAULT_REGION, "cn-north-1"];

pub struct Connection {
    http: SharedHttpClient,
    source: CredentialSource,
    /// For providers of the machine's own credentials. The TLS and proxy options of the bucket URL
    /// do not apply to them: whoever wrote the URL could otherwise intercept the credentials.
    providers: SharedHttpClient,
    instance_credentials: bool,
    client: OnceCell<(Client, String)>,
}

impl Connection {
    pub fn new(service: Service, spec: &Spec, address: &Address, env: Lookup<'_>) -> Result<Self> {
        let base = address.endpoint.as_deref().unwrap_or("https://s3.amazonaws.com");
        let url = Url::parse(base).map_err(|error| Error::BadInput(format!("{base}: {error}")))?;
        let policy = &spec.policy;
        if let Some(host) = url.host_str() {
            policy.check_host(host)?;
        }
        let source = CredentialSource::of(spec, service, env);
        let tls = address.tls.config(OPTIONS, policy)?;
        let http = http::client(&url, tls, Proxies::from_env(env), policy)?;
        let providers = match &source {
            CredentialSource::Platform => {
                let own = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
                let open = Policy::unrestricted();
                http::client(
                    &url,
                    TlsFiles::default().config(OPTIONS, &open)?,
                    Proxies::from_env(&own),
                    &open,
                )?
            }
            CredentialSource::Given(_) | CredentialSource::Anonymous => http.clone(),
        };
        Ok(Self {
            http,
            source,
            providers,
            instance_credentials: spec.instance_credentials && policy.allows_instance_credentials(),
            client: OnceCell::new(),
        })
    }

    pub async fn client(&self, address: &Address, place: &str) -> Result<&Client> {
        self.ready(address, place).await.map(|(client, _)| client)
    }

    pub async fn region(&self, address: &Address, place: &str) -> Result<&str> {
        self.ready(address, place).await.map(|(_, region)| region.as_str())
    }

    async fn ready(&self, address: &Address, place: &str) -> Result<&(Client, String)> {
        self.client
            .get_or_try_init(|| async {
                let region = match &address.region {
                    Some(region) => region.clone(),
                    None => self.find(address, place).await?,
                };
                Ok((Client::from_conf(self.config(address, &region)), region))
            })
            .await
    }

    /// Requests the region of an AWS bucket.
    async fn find(&self, address: &Address, place: &str) -> Result<String> {
        let mut last = None;
        for region in REGIONS {
            let client = Client::from_conf(self.config(address, region));
            match client.get_bucket_location().bucket(&address.bucket).send().await {
                Ok(found) => {
                    // The first AWS region is returned as an empty constraint.
                    let known = found.location_constraint().map(|place| place.as_str().to_owned());
                    let known = known.filter(|region| !region.is_empty());
                    return Ok(known.unwrap_or_else(|| DEFAULT_REGION.to_owned()));
                }
                Err(error) => {
                    let failure = Failure::of(&error);
                    let is_other_part =
                        matches!(&*failure.code, "SignatureDoesNotMatch" | "InvalidAccessKeyId");
                    last = Some(failure);
                    if !is_other_part {
                        break;
                    }
                }
            }
        }
        match last {
            Some(failure) => Err(failure.into_error(place, "find", &address.bucket)),
            None => Ok(DEFAULT_REGION.to_owned()),
        }
    }

    fn config(&self, address: &Address, region: &str) -> Config {
        let mut config: config::Builder = Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new(region.to_owned()))
            .http_client(self.http.clone())
            .retry_config(RetryConfig::disabled())
            .timeout_config(TimeoutConfig::disabled())
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
            .request_checksum_calculation(RequestChecksumCalculation::WhenRequired)
            .response_checksum_validation(ResponseChecksumValidation::WhenRequired)
            .force_path_style(address.path_style);
        config.set_endpoint_url(address.endpoint.clone());
        match self.source.provider(&self.providers, region, self.instance_credentials) {
            Some(provider) => config.credentials_provider(provider).build(),
            None => config.allow_no_auth().build(),
        }
    }
}
