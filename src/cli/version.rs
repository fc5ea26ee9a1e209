//! `version`: prints the version of this program.

use clap::Args;
use serde_json::json;

use crate::meta::record::version::CLIENT_VERSION;

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  Show the version, and that of JuiceFS it is compatible with:
    jfs-mount version --json")]
pub struct Version {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Version {
    pub fn run(&self) -> anyhow::Result<()> {
        let version = env!("CARGO_PKG_VERSION");
        if self.json {
            let shown = json!({ "Version": version, "JuiceFS": CLIENT_VERSION });
            println!("{}", serde_json::to_string_pretty(&shown)?);
        } else {
            println!("jfs-mount version {version} (JuiceFS {CLIENT_VERSION})");
        }
        Ok(())
    }
}
