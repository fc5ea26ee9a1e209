//! What a mount counts, from its `.stats`.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

pub struct Stats(HashMap<String, f64>);

impl Stats {
    /// Of the mount that the directory is on; none if it is on no volume.
    pub fn of(dir: &Path) -> Option<Self> {
        let text = dir.ancestors().find_map(|place| {
            let prefixed = fs::read_to_string(place.join(".jfs.stats"));
            prefixed.or_else(|_| fs::read_to_string(place.join(".stats"))).ok()
        })?;
        let stats = Self::parse(&text);
        // Some other file of that name.
        stats.0.contains_key("uptime").then_some(stats)
    }

    /// Figures that differ only in labels add up.
    fn parse(text: &str) -> Self {
        let mut all = HashMap::new();
        for line in text.lines() {
            let Some((name, value)) = line.split_once(' ') else { continue };
            let Some(name) = name.strip_prefix("juicefs_") else { continue };
            *all.entry(name.to_owned()).or_default() += value.trim().parse().unwrap_or(0.0);
        }
        Self(all)
    }

    pub fn get(&self, name: &str) -> f64 {
        self.0.get(name).copied().unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_one_name_add_up() {
        let stats =
            Stats::parse("juicefs_a 1\njuicefs_a 2.5\nother 3\njuicefs_uptime 7\nnonsense\n");
        assert!((stats.get("a") - 3.5).abs() < 1e-9 && stats.get("other") == 0.0);
    }

    #[test]
    fn a_directory_on_no_volume_has_none() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Stats::of(dir.path()).is_none());
        fs::write(dir.path().join(".stats"), "juicefs_uptime 7\n").unwrap();
        assert!(
            Stats::of(&dir.path().join("below")).is_some_and(|stats| stats.get("uptime") > 6.0)
        );
    }
}
