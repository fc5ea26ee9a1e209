//! The metrics of a mount, read from its `.stats` file.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use anyhow::Context;

/// Names of the file, with and without `--prefix-internal`.
const NAMES: [&str; 2] = [".jfs.stats", ".stats"];

/// Values by metric name. Values that differ only in labels have the same name and are summed.
pub type Metrics = HashMap<String, f64>;

/// Reads the metrics of the volume mounted at `mount_point`.
pub fn read(mount_point: &Path) -> anyhow::Result<Metrics> {
    let [prefixed, plain] = NAMES.map(|name| mount_point.join(name));
    let file = if prefixed.exists() { prefixed } else { plain };
    let text =
        fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(parse(&text))
}

/// Reads the metrics of the mount that contains `dir`, or returns `None` if no volume does.
pub fn find(dir: &Path) -> Option<Metrics> {
    let metrics = dir.ancestors().find_map(|dir| read(dir).ok())?;
    // An ordinary file may have the name too.
    metrics.contains_key("juicefs_uptime").then_some(metrics)
}

fn parse(text: &str) -> Metrics {
    let mut metrics = Metrics::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        if let (Some(name), Some(value), None) = (words.next(), words.next(), words.next())
            && let Ok(value) = value.parse::<f64>()
        {
            *metrics.entry(name.to_owned()).or_default() += value;
        }
    }
    metrics
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_the_same_name_are_summed() {
        let metrics = parse("a 1\na 2.5\nb 7\nbroken\nc x\nd 1 2\n");
        assert_eq!(metrics, Metrics::from([("a".to_owned(), 3.5), ("b".to_owned(), 7.0)]));
    }

    #[test]
    fn a_directory_outside_of_a_mount_has_no_metrics() {
        let dir = tempfile::tempdir().unwrap();
        assert!(find(dir.path()).is_none());
        fs::write(dir.path().join(".stats"), "juicefs_uptime 7\n").unwrap();
        let found = find(&dir.path().join("below")).unwrap();
        assert!(found["juicefs_uptime"] > 6.0);
    }
}
