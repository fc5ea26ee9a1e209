//! `stats`: prints the activity of a mount, second by second.

mod cell_format;
mod schema;

use std::fs;
use std::io::{IsTerminal, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use serde_json::{Map, Value};
use tokio::time::{MissedTickBehavior, interval};

use super::stats_file::{self, Metrics};
use cell_format::Paint;
use schema::Section;

/// The inode of a mount's root.
const ROOT: u64 = 1;
/// Lines between two headers.
const PAGE: u64 = 30;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  Show the activity of a mount, line by line:
    jfs-mount stats /mnt/jfs
  Show more columns of the object storage, as JSON:
    jfs-mount stats /mnt/jfs --schema o -l 1 --json")]
pub struct Stats {
    /// Where the volume is mounted
    #[arg(value_name = "MOUNTPOINT")]
    point: PathBuf,
    /// Sections to show: t time, u usage, f FUSE, m metadata, c block cache, o objects, g Go
    #[arg(long, value_name = "LETTERS", default_value = "ufmco")]
    schema: String,
    /// Seconds between two lines
    #[arg(long, value_name = "SECONDS", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..))]
    interval: u64,
    /// Show more columns from 1 on
    #[arg(short = 'l', long, value_name = "LEVEL", default_value_t = 0)]
    verbosity: u8,
    /// Lines to show; 0 for until interrupted
    #[arg(short, long, value_name = "N", default_value_t = 0)]
    count: u64,
    /// Print each line as a JSON object; rates per second, times in milliseconds
    #[arg(long)]
    json: bool,
}

impl Stats {
    pub async fn run(self) -> anyhow::Result<()> {
        let found = fs::metadata(&self.point)
            .with_context(|| format!("cannot stat {}", self.point.display()))?;
        if found.ino() != ROOT {
            bail!("{} is not a mount point of a volume", self.point.display());
        }
        let sections = schema::sections(&self.schema, self.verbosity)?;
        let paint = Paint::new(std::io::stdout().is_terminal() && !self.json);
        let mut ticks = interval(Duration::from_secs(self.interval));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut before = Metrics::new();
        for line in 0.. {
            ticks.tick().await;
            let now = stats_file::read(&self.point)?;
            // Compared with itself, the first line shows current levels, and zero for rates.
            let since = if line == 0 { &now } else { &before };
            let text = if self.json {
                object(&sections, since, &now, self.interval as f64).to_string()
            } else {
                let header = (line % PAGE == 0).then(|| schema::header(&sections, paint) + "\n");
                let row = schema::row(&sections, since, &now, self.interval as f64, paint);
                header.unwrap_or_default() + &row
            };
            // The reader of a pipe may have closed it.
            if writeln!(std::io::stdout(), "{text}").is_err() {
                return Ok(());
            }
            if line + 1 == self.count {
                return Ok(());
            }
            before = now;
        }
        Ok(())
    }
}

fn object(sections: &[Section], before: &Metrics, now: &Metrics, seconds: f64) -> Value {
    let mut all = Map::new();
    all.insert("time".to_owned(), chrono::Utc::now().to_rfc3339().into());
    for section in sections {
        let mut values = Map::new();
        for (name, value) in section.values(before, now, seconds) {
            values.insert(name, value.into());
        }
        all.insert(section.name.to_owned(), values.into());
    }
    Value::Object(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_rates_and_latencies() {
        let sections = schema::sections("f", 0).unwrap();
        let ops = "juicefs_fuse_ops_durations_histogram_seconds";
        let before = Metrics::from([(format!("{ops}_total"), 10.0), (format!("{ops}_sum"), 1.0)]);
        let now = Metrics::from([
            (format!("{ops}_total"), 30.0),
            (format!("{ops}_sum"), 1.5),
            ("juicefs_fuse_read_size_bytes_sum".to_owned(), 4096.0),
        ]);
        let shown = object(&sections, &before, &now, 2.0);
        let expected =
            serde_json::json!({"ops": 10.0, "ops_lat": 25.0, "read": 2048.0, "write": 0.0});
        assert_eq!(shown["fuse"], expected);
    }
}
