//! Bucket URLs, in every form that JuiceFS accepts.

use std::path::PathBuf;

use url::Url;

use crate::error::{Error, Result};
use crate::tls::TlsFiles;

pub const DEFAULT_REGION: &str = "us-east-1";
const OSS_DEFAULT_REGION: &str = "cn-hangzhou";

/// A service with an S3 API. Each has its own form of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    S3,
    Minio,
    Oss,
    /// `bucket.endpoint`, with the region in a label of the host.
    Wasabi,
    Scaleway,
    Spaces,
    Eos,
    Oos,
    Cos,
    Obs,
}

/// Where a bucket is and how to connect to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    pub bucket: String,
    /// `None` uses the AWS endpoint of the region.
    pub endpoint: Option<String>,
    /// `None` if the region must be requested from AWS.
    pub region: Option<String>,
    /// Whether the bucket is in the path, and not in the host.
    pub path_style: bool,
    /// Whether bodies are verified against their `Crc32c`.
    pub checksum: bool,
    pub tls: TlsFiles,
}

/// Looks up an environment variable; an empty one counts as missing.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

impl Service {
    pub fn of(storage: &str) -> Option<Self> {
        Some(match storage {
            "s3" => Self::S3,
            "minio" => Self::Minio,
            "oss" => Self::Oss,
            "wasabi" => Self::Wasabi,
            "scw" => Self::Scaleway,
            "space" => Self::Spaces,
            "eos" => Self::Eos,
            "oos" => Self::Oos,
            "cos" => Self::Cos,
            "obs" => Self::Obs,
            _ => return None,
        })
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Minio => "minio",
            Self::Oss => "oss",
            Self::Wasabi => "wasabi",
            Self::Scaleway => "scw",
            Self::Spaces => "space",
            Self::Eos => "eos",
            Self::Oos => "oos",
            Self::Cos => "cos",
            Self::Obs => "obs",
        }
    }

    /// Parses a bucket URL.
    pub fn address(self, bucket: &str, env: Lookup<'_>) -> Result<Address> {
        let url = self.url(bucket)?;
        let mut address = Address {
            bucket: String::new(),
            endpoint: None,
            region: None,
            path_style: path_style(env),
            checksum: true,
            tls: TlsFiles::default(),
        };
        options(&url, &mut address)?;
        match self {
            Self::S3 => s3(&url, &mut address, env)?,
            Self::Minio => minio(&url, &mut address, env)?,
            Self::Oss => oss(&url, &mut address, env)?,
            Self::Wasabi | Self::Scaleway | Self::Cos | Self::Obs => {
                by_label(&url, &mut address, 2)?;
            }
            Self::Spaces => by_label(&url, &mut address, 1)?,
            Self::Eos => {
                split_host(&url, &mut address)?;
                address.path_style = path_style(env);
                address.region = Some(DEFAULT_REGION.to_owned());
            }
            Self::Oos => {
                by_label(&url, &mut address, 1)?;
                let label = address.region.take().unwrap_or_default();
                address.region = Some(label.strip_prefix("oos-").unwrap_or(&label).to_owned());
                let endpoint = address.endpoint.as_deref().unwrap_or_default();
                address.path_style = !endpoint.contains("xstore.ctyun.cn");
            }
        }
        if address.bucket.is_empty() {
            return Err(bad(&url, "names no bucket"));
        }
        Ok(address)
    }

    /// Parses the URL, adding a scheme if there is none.
    fn url(self, bucket: &str) -> Result<Url> {
        let plain = bucket.split(['/', '?']).next().unwrap_or_default();
        let secure = match self {
            Self::S3 => !plain.contains('.') || plain.ends_with(".amazonaws.com"),
            Self::Minio => false,
            _ => true,
        };
        let full = match (bucket.contains("://"), secure) {
            (true, _) => bucket.to_owned(),
            (false, true) => format!("https://{bucket}"),
            (false, false) => format!("http://{bucket}"),
        };
        let url = Url::parse(&full)
            .map_err(|error| Error::BadInput(format!("bucket {:?}: {error}", shown(bucket))))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(bad(&url, "is neither http nor https"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Error::bad_input("a bucket URL cannot hold keys: pass them as options"));
        }
        Ok(url)
    }
}

/// Parses the query of a URL.
fn options(url: &Url, address: &mut Address) -> Result<()> {
    for (name, value) in url.query_pairs() {
        let flag = || match value.to_lowercase().as_str() {
            "true" | "1" | "t" => Ok(true),
            "false" | "0" | "f" => Ok(false),
            _ => Err(bad(url, &format!("has {name}={value}, which is neither true nor false"))),
        };
        let file = || Some(PathBuf::from(value.as_ref()));
        match name.as_ref() {
            "region" => address.region = Some(value.clone().into_owned()),
            "disable-checksum" => address.checksum = !flag()?,
            "tls-insecure-skip-verify" => address.tls.skip_verify = flag()?,
            "ca-certs" => address.tls.ca = file(),
            "ssl-cert" => address.tls.cert = file(),
            "ssl-key" => address.tls.key = file(),
            // Nothing to disable: no request here uses `Expect: 100-continue`.
            "disable-100-continue" => drop(flag()?),
            _ => return Err(bad(url, &format!("has an unknown option {name}"))),
        }
    }
    Ok(())
}

/// Parses `https://bucket.s3.region.amazonaws.com`, `https://s3.region.amazonaws.com/bucket`,
/// `http://endpoint/bucket`, `http://bucket.endpoint`, or just the bucket.
fn s3(url: &Url, address: &mut Address, env: Lookup<'_>) -> Result<()> {
    let host = host(url)?;
    let path = url.path().trim_matches('/');
    let aws = host.contains(".amazonaws.com");
    let mut region = None;
    if !path.is_empty() {
        first(path, '/').clone_into(&mut address.bucket);
        if aws {
            region = Some(aws_region(&host));
        } else {
            address.endpoint = Some(endpoint(url, &host));
        }
    } else if let Some((bucket, rest)) = host.split_once('.') {
        bucket.clone_into(&mut address.bucket);
        if aws && !host.contains(".vpce.amazonaws.com") {
            let (bucket, rest) = host.split_once(".s3").unwrap_or((bucket, rest));
            bucket.clone_into(&mut address.bucket);
            region = Some(aws_region(&format!("s3{rest}")));
        } else {
            address.endpoint = Some(endpoint(url, rest));
            region = region_in_host(rest);
        }
    } else {
        // Only a bucket: AWS knows its region.
        address.bucket = host;
        address.path_style = false;
        address.region = address.region.take().or_else(|| env("AWS_REGION"));
        return Ok(());
    }
    let configured = || env("AWS_REGION").or_else(|| env("AWS_DEFAULT_REGION"));
    let said = address.region.take().or(region).or_else(configured);
    let region = said.unwrap_or_else(|| DEFAULT_REGION.to_owned());
    if address.endpoint.is_none() {
        address.path_style = false;
        if url.scheme() == "http" {
            let country = if region.starts_with("cn-") { ".cn" } else { "" };
            address.endpoint = Some(format!("http://s3.{region}.amazonaws.com{country}"));
        }
    }
    address.region = Some(region);
    Ok(())
}

/// Parses `http://host:port/bucket`, optionally with `minio/` before the bucket.
fn minio(url: &Url, address: &mut Address, env: Lookup<'_>) -> Result<()> {
    let path = url.path().trim_start_matches('/');
    let path = path.strip_prefix("minio/").unwrap_or(path);
    first(path, '/').clone_into(&mut address.bucket);
    address.endpoint = Some(endpoint(url, &host(url)?));
    let said = address.region.take().or_else(|| env("MINIO_REGION"));
    address.region = Some(said.unwrap_or_else(|| DEFAULT_REGION.to_owned()));
    Ok(())
}

/// Parses `https://bucket.oss-region.aliyuncs.com`, also with `-internal`, and private links.
fn oss(url: &Url, address: &mut Address, env: Lookup<'_>) -> Result<()> {
    split_host(url, address)?;
    let domain = host(url)?.split_once('.').map(|(_, rest)| rest.to_owned()).unwrap_or_default();
    address.path_style = domain.contains(".privatelink.");
    let label = if address.path_style {
        domain.split('.').nth(2).unwrap_or_default()
    } else {
        first(&domain, '.')
    };
    let known = domain.ends_with(".aliyuncs.com").then(|| {
        let label = label.strip_prefix("oss-").unwrap_or(label);
        let label = label.strip_suffix("-internal").unwrap_or(label);
        label.strip_suffix("-vpc").unwrap_or(label).to_owned()
    });
    let said = address.region.take().or_else(|| env("ALICLOUD_REGION_ID")).or(known);
    address.region = Some(said.unwrap_or_else(|| OSS_DEFAULT_REGION.to_owned()));
    Ok(())
}

/// Parses `https://bucket.a.b.c`, with the region in label number `label` after the bucket.
fn by_label(url: &Url, address: &mut Address, label: usize) -> Result<()> {
    split_host(url, address)?;
    let host = host(url)?;
    let region = host.split('.').nth(label).filter(|label| !label.is_empty());
    let said = address.region.take().or_else(|| region.map(str::to_owned));
    address.region = Some(said.ok_or_else(|| bad(url, "names no region"))?);
    Ok(())
}

/// Splits the host: the bucket is the first label, the endpoint is the rest.
fn split_host(url: &Url, address: &mut Address) -> Result<()> {
    let host = host(url)?;
    let (bucket, rest) =
        host.split_once('.').ok_or_else(|| bad(url, "is not of the form bucket.endpoint"))?;
    bucket.clone_into(&mut address.bucket);
    address.endpoint = Some(endpoint(url, rest));
    address.path_style = false;
    Ok(())
}

fn endpoint(url: &Url, host: &str) -> String {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{host}{port}", url.scheme())
}

/// Parses `s3.region.amazonaws.com`, `s3-region...`, `s3.dualstack.region...`, `s3.amazonaws.com`.
fn aws_region(host: &str) -> String {
    let rest = host.strip_prefix("s3-").or_else(|| host.strip_prefix("s3.")).unwrap_or(host);
    let rest = rest.strip_prefix("dualstack.").unwrap_or(rest);
    match first(rest, '.') {
        "amazonaws" | "external-1" => DEFAULT_REGION.to_owned(),
        region => region.to_owned(),
    }
}

/// Returns the region in hosts outside of AWS that are known to contain it.
fn region_in_host(host: &str) -> Option<String> {
    let labels: Vec<&str> = host.split('.').collect();
    let region = match labels.as_slice() {
        // Endpoints of private links: vpce-id.s3.region.vpce.amazonaws.com.
        [.., region, "vpce", "amazonaws", "com"]
        | [_, "compat", "objectstorage", region, "oraclecloud", "com"]
        | ["s3", region, "cloud", "ovh", "net"]
        | ["s3", region, _, "cloud", "ovh", "net"] => *region,
        _ => return None,
    };
    Some(region.to_owned())
}

fn path_style(env: Lookup<'_>) -> bool {
    env("JFS_S3_VHOST_STYLE").is_none_or(|value| matches!(value.as_str(), "0" | "false"))
}

fn host(url: &Url) -> Result<String> {
    url.host_str().map(str::to_owned).ok_or_else(|| bad(url, "has no host"))
}

fn first(text: &str, separator: char) -> &str {
    text.split(separator).next().unwrap_or_default()
}

fn bad(url: &Url, why: &str) -> Error {
    Error::BadInput(format!("bucket {:?} {why}", shown(url.as_str())))
}

/// Returns an address with its credentials masked, for errors and logs.
fn shown(bucket: &str) -> String {
    match bucket.rsplit_once('@') {
        Some((before, host)) => match before.split_once("://") {
            Some((scheme, _)) => format!("{scheme}://****@{host}"),
            None => format!("****@{host}"),
        },
        None => bucket.to_owned(),
    }
}

#[cfg(test)]
mod tests;
