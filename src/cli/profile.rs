//! `profile`: which operations a mount carries out and how long they take, by its access log.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal, stdout};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use chrono::{Local, NaiveDateTime, TimeDelta};
use clap::Args;
use serde::Serialize;
use tokio::sync::mpsc;

/// The access log at the root of a mount, with the prefix of `--prefix-internal` and without.
const LOGS: [&str; 2] = [".jfs.accesslog", ".accesslog"];
/// The inode of a mount's root.
const ROOT: u64 = 1;
/// Lines that were read and not yet counted.
const QUEUE: usize = 4096;
/// A line that is longer is no line of an access log.
const MAX_LINE: usize = 64 << 10;
const CLEAR_SCREEN: &str = "\x1b[2J\x1b[1;1H";

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  Watch a mount:
    jfs-mount profile /mnt/jfs
  Sum up a saved access log:
    jfs-mount profile access.log --interval 0")]
pub struct Profile {
    /// Root of a mount, or a saved access log
    #[arg(value_name = "MOUNTPOINT|LOGFILE")]
    path: PathBuf,
    /// Count only these users, separated by commas
    #[arg(short, long, value_name = "UID", value_delimiter = ',')]
    uid: Vec<u32>,
    /// Count only these groups, separated by commas
    #[arg(short, long, value_name = "GID", value_delimiter = ',')]
    gid: Vec<u32>,
    /// Count only these processes, separated by commas
    #[arg(short, long, value_name = "PID", value_delimiter = ',')]
    pid: Vec<u32>,
    /// Seconds between two tables; 0 sums up a whole log
    #[arg(long, value_name = "SECONDS", default_value_t = 2)]
    interval: u32,
    /// Print a line of JSON instead of each table
    #[arg(long)]
    json: bool,
}

/// One operation of the log.
#[derive(Debug, PartialEq)]
struct Line<'a> {
    time: NaiveDateTime,
    uid: u32,
    gid: u32,
    pid: u32,
    op: &'a str,
    micros: u64,
}

impl<'a> Line<'a> {
    /// Parses `2026.01.15 08:26:11.003330 [uid:0,gid:0,pid:1] write (..): OK <0.000010>`. Returns
    /// none for anything else, such as the `#` that a quiet mount writes.
    fn parse(text: &'a str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let (date, clock, ids, op) = (words.next()?, words.next()?, words.next()?, words.next()?);
        let took = words.next_back()?.strip_prefix('<')?.strip_suffix('>')?;
        let seconds: f64 = took.parse().ok()?;
        let mut ids = ids.strip_prefix('[')?.strip_suffix(']')?.split(',');
        let mut id = |name: &str| ids.next()?.strip_prefix(name)?.parse().ok();
        let time = format!("{date} {clock}");
        Some(Self {
            time: NaiveDateTime::parse_from_str(&time, "%Y.%m.%d %H:%M:%S%.f").ok()?,
            uid: id("uid:")?,
            gid: id("gid:")?,
            pid: id("pid:")?,
            op,
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a cast from a float saturates"
            )]
            micros: (seconds * 1e6).round() as u64,
        })
    }
}

/// What was counted of one operation.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
struct OpCount {
    count: u64,
    total_us: u64,
}

#[derive(Debug, Default)]
struct Counts(BTreeMap<String, OpCount>);

impl Counts {
    fn add(&mut self, line: &Line<'_>) {
        if !self.0.contains_key(line.op) {
            self.0.insert(line.op.to_owned(), OpCount::default());
        }
        if let Some(counted) = self.0.get_mut(line.op) {
            counted.count += 1;
            counted.total_us = counted.total_us.saturating_add(line.micros);
        }
    }

    /// The table that people read; operations that took longest in total come first.
    fn table(&self, title: &str, spent: Duration) -> String {
        let mut rows: Vec<(&String, &OpCount)> = self.0.iter().collect();
        rows.sort_by_key(|(_, counted)| std::cmp::Reverse(counted.total_us));
        let mut lines = vec![
            title.to_owned(),
            format!(
                "{:<14} {:>10} {:>15} {:>18} {:>14}",
                "Operation", "Count", "Average(us)", "Total(us)", "Percent(%)"
            ),
        ];
        lines.extend(rows.into_iter().map(|(op, OpCount { count, total_us })| {
            let average = *total_us as f64 / (*count).max(1) as f64;
            let percent = *total_us as f64 * 100.0 / (spent.as_micros() as f64).max(1.0);
            format!("{op:<14} {count:>10} {average:>15.0} {total_us:>18} {percent:>14.1}")
        }));
        lines.join("\n") + "\n"
    }
}

impl Profile {
    pub async fn run(self) -> anyhow::Result<()> {
        let shown = self.path.display();
        let found = self.path.metadata().with_context(|| format!("cannot look at {shown}"))?;
        if !found.is_dir() {
            let file = File::open(&self.path).with_context(|| format!("cannot open {shown}"))?;
            return self.replay(file);
        }
        if found.ino() != ROOT {
            bail!("{shown} is not the root of a JuiceFS mount");
        }
        if self.interval == 0 {
            bail!("--interval 0 is for a saved log; a mount needs at least one second");
        }
        self.watch(open_log(&self.path)?).await
    }

    /// Counts a saved log: all of it, or a table for each interval of its own time.
    fn replay(&self, file: File) -> anyhow::Result<()> {
        let interval = TimeDelta::seconds(self.interval.into());
        let mut counts = Counts::default();
        let (mut begin, mut last): (Option<NaiveDateTime>, _) = (None, None);
        each_line(file, |text| {
            let Some(line) = Line::parse(text) else { return Ok(()) };
            let start = *begin.get_or_insert(line.time);
            if self.interval > 0 && line.time >= start + interval {
                self.print(&std::mem::take(&mut counts), start + interval, interval);
                // Quiet intervals are left out.
                let passed = (line.time - start).num_seconds() / i64::from(self.interval);
                begin = Some(start + interval * i32::try_from(passed).unwrap_or(1));
            }
            if self.counts(&line) {
                counts.add(&line);
            }
            last = Some(line.time);
            Ok(())
        })?;
        let (Some(begin), Some(last)) = (begin, last) else {
            bail!("{} has no line of an access log", self.path.display());
        };
        let spent = if self.interval > 0 { interval } else { last - begin };
        self.print(&counts, last, spent);
        Ok(())
    }

    /// Counts what the mount does until it is unmounted or the command is interrupted.
    async fn watch(&self, file: File) -> anyhow::Result<()> {
        let (sender, mut lines) = mpsc::channel(QUEUE);
        // A read of the log blocks as long as the mount is quiet.
        std::thread::spawn(move || {
            each_line(file, |text| Ok(sender.blocking_send(text.to_owned())?))
        });
        let every = Duration::from_secs(self.interval.into());
        let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + every, every);
        let mut counts = Counts::default();
        loop {
            tokio::select! {
                line = lines.recv() => match line {
                    Some(text) => {
                        if let Some(line) = Line::parse(&text).filter(|line| self.counts(line)) {
                            counts.add(&line);
                        }
                    }
                    None => bail!("the access log of {} ended", self.path.display()),
                },
                _ = ticks.tick() => {
                    let spent = TimeDelta::seconds(self.interval.into());
                    self.print(&std::mem::take(&mut counts), Local::now().naive_local(), spent);
                }
            }
        }
    }

    fn counts(&self, line: &Line<'_>) -> bool {
        let wanted = |ids: &[u32], id| ids.is_empty() || ids.contains(&id);
        wanted(&self.uid, line.uid) && wanted(&self.gid, line.gid) && wanted(&self.pid, line.pid)
    }

    fn print(&self, counts: &Counts, at: NaiveDateTime, spent: TimeDelta) {
        let time = at.format("%Y-%m-%dT%H:%M:%S");
        if self.json {
            let ops = serde_json::to_value(&counts.0).unwrap_or_default();
            println!("{}", serde_json::json!({"time": time.to_string(), "operations": ops}));
            return;
        }
        if stdout().is_terminal() && self.interval > 0 {
            print!("{CLEAR_SCREEN}");
        }
        let title = format!("> JuiceFS Profiling  Refresh: {} seconds  {time}", self.interval);
        println!("{}", counts.table(&title, spent.to_std().unwrap_or_default()));
    }
}

fn open_log(root: &Path) -> anyhow::Result<File> {
    for name in LOGS {
        match File::open(root.join(name)) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            other => {
                return other.with_context(|| format!("cannot open {name} of {}", root.display()));
            }
        }
    }
    bail!("{} has no access log", root.display())
}

/// Reads lines in bounded memory; what is longer than a line may be is skipped.
fn each_line(file: File, mut then: impl FnMut(&str) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    let mut too_long = false;
    loop {
        let (length, ended) = {
            let bytes = reader.fill_buf().context("cannot read the access log")?;
            if bytes.is_empty() {
                break;
            }
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let part = &bytes[..end.unwrap_or(bytes.len())];
            too_long |= line.len() + part.len() > MAX_LINE;
            if !too_long {
                line.extend_from_slice(part);
            }
            (part.len() + usize::from(end.is_some()), end.is_some())
        };
        reader.consume(length);
        if ended {
            if !too_long {
                then(&String::from_utf8_lossy(&line))?;
            }
            line.clear();
            too_long = false;
        }
    }
    if line.is_empty() || too_long { Ok(()) } else { then(&String::from_utf8_lossy(&line)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITE: &str =
        "2026.01.15 08:26:11.003330 [uid:7,gid:8,pid:9] write (17,8,4): OK <0.000010>";

    #[test]
    fn a_line_of_the_log_is_parsed() {
        let line = Line::parse(WRITE).unwrap();
        assert_eq!((line.uid, line.gid, line.pid, line.op, line.micros), (7, 8, 9, "write", 10));
        for text in ["", "#", "# idle", &WRITE[..50], "a b c d e", &WRITE.replace("uid", "id")] {
            assert_eq!(Line::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn the_longest_in_total_comes_first() {
        let mut counts = Counts::default();
        for (op, count, micros) in [("read", 2, 10), ("write", 1, 1000)] {
            for _ in 0..count {
                let line = Line { op, micros, ..Line::parse(WRITE).unwrap() };
                counts.add(&line);
            }
        }
        let table = counts.table("> title", Duration::from_secs(2));
        let expected = "\
> title
Operation           Count     Average(us)          Total(us)     Percent(%)
write                   1            1000               1000            0.1
read                    2              10                 20            0.0
";
        assert_eq!(table, expected);
    }

    #[test]
    fn lines_that_are_too_long_are_skipped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        std::fs::write(&path, format!("a\n{}\nb", "x".repeat(MAX_LINE + 1))).unwrap();
        let mut seen = Vec::new();
        each_line(File::open(&path).unwrap(), |line| {
            seen.push(line.to_owned());
            Ok(())
        })
        .unwrap();
        assert_eq!(seen, ["a", "b"]);
    }
}
