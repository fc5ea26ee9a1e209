//! Options about metrics: where they are served, and their labels.

use std::collections::HashMap;
use std::net::{SocketAddr, ToSocketAddrs};

use anyhow::{Context, bail};
use clap::Args;
use prometheus::Registry;

use super::Warnings;
use crate::meta::record::version::CLIENT_VERSION;

/// The default of `--metrics`.
const DEFAULT_ADDRESS: &str = "127.0.0.1:9567";

#[derive(Debug, Args)]
#[command(next_help_heading = "Metrics")]
pub struct MetricsArgs {
    /// Where metrics are served [default: 127.0.0.1:9567, or another port if that one is taken]
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<String>,
    /// Labels of every metric, name:value, separated by semicolons
    #[arg(long, value_name = "LABELS", value_parser = parse_labels)]
    pub custom_labels: Option<Labels>,
    /// Address of a Consul agent; metrics are not announced there
    #[arg(long, value_name = "ADDRESS")]
    pub consul: Option<String>,
    /// Send no usage report; none is ever sent
    #[arg(long)]
    pub no_usage_report: bool,
}

#[derive(Debug, Clone)]
pub struct Labels(Vec<(String, String)>);

impl MetricsArgs {
    pub fn check(&self, warnings: &mut Warnings) -> anyhow::Result<()> {
        // Without `..`, so that a new option is not forgotten here.
        let Self { metrics, custom_labels, consul, no_usage_report: _ } = self;
        if consul.is_some() {
            warnings.add_no_effect("--consul", "metrics are not announced anywhere");
        }
        for (name, _) in custom_labels.iter().flat_map(|labels| &labels.0) {
            if ["mp", "vol_name", "instance", "juicefs_version"].contains(&name.as_str()) {
                warnings.add(format!("--custom-labels replaces the label {name}"));
            }
        }
        if let Some(address) = metrics {
            resolve(address).with_context(|| format!("--metrics {address}"))?;
        }
        Ok(())
    }

    /// Returns where to listen, and whether any other port may be used if that one is taken.
    pub fn address(&self) -> anyhow::Result<(SocketAddr, bool)> {
        let address = self.metrics.as_deref().unwrap_or(DEFAULT_ADDRESS);
        let found = resolve(address).with_context(|| format!("--metrics {address}"))?;
        Ok((found, self.metrics.is_none()))
    }

    /// Returns a registry for all metrics of the mount, with JuiceFS's prefix and labels.
    pub fn registry(&self, point: &str, volume: &str) -> anyhow::Result<Registry> {
        let mut labels = HashMap::from([
            ("mp".to_owned(), point.to_owned()),
            ("vol_name".to_owned(), volume.to_owned()),
            ("juicefs_version".to_owned(), CLIENT_VERSION.to_owned()),
        ]);
        if let Ok(host) = nix::unistd::gethostname() {
            labels.insert("instance".to_owned(), host.to_string_lossy().into_owned());
        }
        labels.extend(self.custom_labels.iter().flat_map(|labels| labels.0.iter().cloned()));
        Registry::new_custom(Some("juicefs".to_owned()), Some(labels)).context("metrics")
    }
}

/// Resolves an address; `:9567` means every address of this host.
fn resolve(address: &str) -> anyhow::Result<SocketAddr> {
    let full = match address.strip_prefix(':') {
        Some(port) => format!("0.0.0.0:{port}"),
        None => address.to_owned(),
    };
    let mut found = full.to_socket_addrs()?;
    found.next().context("no such address")
}

fn parse_labels(text: &str) -> anyhow::Result<Labels> {
    let mut labels = Vec::new();
    for label in text.split(';').filter(|label| !label.is_empty()) {
        match label.split_once(':') {
            Some((name, value)) if is_label_name(name) && !value.contains(':') => {
                labels.push((name.to_owned(), value.to_owned()));
            }
            _ => bail!("label {label:?} is not name:value"),
        }
    }
    Ok(Labels(labels))
}

/// Returns whether Prometheus accepts the name of a label.
fn is_label_name(name: &str) -> bool {
    let first = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    first && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
