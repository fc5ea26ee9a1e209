//! `stats`: what a mount does, second by second.

mod cell;
mod schema;

use std::collections::HashMap;
use std::fs;
use std::io::{IsTerminal, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use serde_json::{Map, Value};
use tokio::time::{MissedTickBehavior, interval};

use cell::Paint;
use schema::Section;

/// What the file is called, where names have a prefix and where not.
const NAMES: [&str; 2] = [".jfs.stats", ".stats"];
/// The number of a mount's root.
const ROOT: u64 = 1;
/// Lines between two headers.
const PAGE: u64 = 30;

#[derive(Debug, Args)]
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
    /// Lines to show; 0: until interrupted
    #[arg(short, long, value_name = "N", default_value_t = 0)]
    count: u64,
    /// An object in JSON instead of each line; rates by second, times in milliseconds
    #[arg(long)]
    json: bool,
}

/// Figures by their names, those of one name added up.
type Figures = HashMap<String, f64>;

impl Stats {
    pub async fn run(self) -> anyhow::Result<()> {
        let found = fs::metadata(&self.point)
            .with_context(|| format!("cannot look at {}", self.point.display()))?;
        if found.ino() != ROOT {
            bail!("{} is not where a volume is mounted", self.point.display());
        }
        let sections = schema::sections(&self.schema, self.verbosity)?;
        let paint = Paint::new(std::io::stdout().is_terminal() && !self.json);
        let mut ticks = interval(Duration::from_secs(self.interval));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first shows what has been so far.
        let mut before = Figures::new();
        for line in 0.. {
            ticks.tick().await;
            let now = read(&self.point)?;
            // Against itself, the first line shows rates of nothing, and what is now.
            let since = if line == 0 { &now } else { &before };
            let text = if self.json {
                object(&sections, since, &now, self.interval as f64).to_string()
            } else {
                let header = (line % PAGE == 0).then(|| schema::header(&sections, paint) + "\n");
                let row = schema::row(&sections, since, &now, self.interval as f64, paint);
                header.unwrap_or_default() + &row
            };
            // Whoever reads this may have had enough.
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

fn read(point: &Path) -> anyhow::Result<Figures> {
    let prefixed = point.join(NAMES[0]);
    let file = if prefixed.exists() { prefixed } else { point.join(NAMES[1]) };
    let text =
        fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(parse(&text))
}

fn parse(text: &str) -> Figures {
    let mut figures = Figures::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        if let (Some(name), Some(value), None) = (words.next(), words.next(), words.next())
            && let Ok(value) = value.parse::<f64>()
        {
            *figures.entry(name.to_owned()).or_default() += value;
        }
    }
    figures
}

fn object(sections: &[Section], before: &Figures, now: &Figures, seconds: f64) -> Value {
    let mut all = Map::new();
    all.insert("time".to_owned(), chrono::Utc::now().to_rfc3339().into());
    for section in sections {
        let mut figures = Map::new();
        for (name, value) in section.values(before, now, seconds) {
            figures.insert(name, value.into());
        }
        all.insert(section.name.to_owned(), figures.into());
    }
    Value::Object(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_one_name_are_added_up() {
        let figures = parse("a 1\na 2.5\nb 7\nbroken\nc x\nd 1 2\n");
        assert_eq!(figures, Figures::from([("a".to_owned(), 3.5), ("b".to_owned(), 7.0)]));
    }

    #[test]
    fn a_script_gets_rates_and_times() {
        let sections = schema::sections("f", 0).unwrap();
        let ops = "juicefs_fuse_ops_durations_histogram_seconds";
        let before = Figures::from([(format!("{ops}_total"), 10.0), (format!("{ops}_sum"), 1.0)]);
        let now = Figures::from([
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
