//! The report: measurements, colored by how they compare with normal values.

use std::fmt::Write;

use serde_json::{Value, json};

use super::files::Files;
use crate::cli::stats_file::Metrics;
use crate::options::sizes::Bytes;

const MIB: f64 = 1024.0 * 1024.0;

/// Normal values, those of the Go client: a value above the second number and a cost below the third
/// are good, a value below the first and a cost above the fourth are bad.
const NORMAL: &[(&str, [f64; 4])] = &[
    ("bigwr", [100.0, 200.0, 10.0, 50.0]),
    ("bigrd", [100.0, 200.0, 10.0, 50.0]),
    ("smallwr", [12.5, 20.0, 50.0, 80.0]),
    ("smallrd", [50.0, 100.0, 10.0, 20.0]),
    ("stat", [20.0, 1000.0, 1.0, 5.0]),
    ("fuse", [0.0, 0.0, 0.5, 2.0]),
    ("meta", [0.0, 0.0, 2.0, 5.0]),
    ("put", [0.0, 0.0, 100.0, 200.0]),
    ("get", [0.0, 0.0, 100.0, 200.0]),
    ("delete", [0.0, 0.0, 30.0, 100.0]),
    ("cachewr", [0.0, 0.0, 10.0, 20.0]),
    ("cacherd", [0.0, 0.0, 1.0, 5.0]),
];

/// Operations of the mount during the benchmark: title, kind, metric.
const OPERATIONS: &[(&str, &str, &str)] = &[
    ("FUSE operation", "fuse", "fuse_ops_durations_histogram_seconds"),
    ("Update meta", "meta", "transaction_durations_histogram_seconds"),
    ("Put object", "put", "object_request_durations_histogram_seconds_PUT"),
    ("Get object", "get", "object_request_durations_histogram_seconds_GET"),
    ("Delete object", "delete", "object_request_durations_histogram_seconds_DELETE"),
    ("Write into cache", "cachewr", "blockcache_write_hist_seconds"),
    ("Read from cache", "cacherd", "blockcache_read_hist_seconds"),
];

pub struct Report {
    pub block_size: u64,
    pub big_file_size: u64,
    pub small_file_size: u64,
    pub small_file_count: u64,
    pub threads: usize,
    pub items: Vec<Item>,
    pub process: Option<Process>,
}

/// Resources used by the process of the mount.
pub struct Process {
    seconds: f64,
    cpu_percent: f64,
    memory_mib: f64,
}

/// A line of the report.
pub struct Item {
    title: &'static str,
    kind: &'static str,
    value: f64,
    unit: &'static str,
    /// Digits of the value after the decimal point.
    digits: usize,
    cost: f64,
    cost_unit: &'static str,
    /// Normal values are multiplied by the number of threads.
    threads: usize,
}

impl Item {
    pub fn big(title: &'static str, kind: &'static str, files: &Files, seconds: f64) -> Self {
        let bytes = (files.size * files.total()) as f64;
        let (value, cost) = (bytes / MIB / seconds, seconds / files.count as f64);
        Self { title, kind, value, unit: "MiB/s", digits: 2, cost, cost_unit: "s/file", threads: 1 }
    }

    pub fn small(title: &'static str, kind: &'static str, files: &Files, seconds: f64) -> Self {
        let value = files.total() as f64 / seconds;
        let cost = seconds * 1000.0 / files.count as f64;
        let threads = files.threads;
        Self { title, kind, value, unit: "files/s", digits: 1, cost, cost_unit: "ms/file", threads }
    }

    /// Returns the cells of the line.
    fn cells(&self, colors: bool) -> [Cell; 3] {
        let (value, cost) =
            (format!("{:.*}", self.digits, self.value), format!("{:.2}", self.cost));
        let normal = NORMAL.iter().find(|(kind, _)| *kind == self.kind).map(|(_, normal)| normal);
        let (mut good, mut cheap) = (None, None);
        if let Some([low, high, little, much]) = normal.filter(|_| colors) {
            let threads = self.threads as f64;
            good = Some(Color::of(self.value > high * threads, self.value > low * threads));
            cheap = Some(Color::of(self.cost < *little, self.cost < *much));
        }
        [
            Cell { number: String::new(), color: None, rest: self.title.to_owned() },
            Cell { number: value, color: good, rest: format!(" {}", self.unit) },
            Cell { number: cost, color: cheap, rest: format!(" {}", self.cost_unit) },
        ]
    }
}

#[derive(Clone, Copy)]
enum Color {
    Red = 31,
    Green = 32,
    Yellow = 33,
}

impl Color {
    fn of(good: bool, fair: bool) -> Self {
        match (good, fair) {
            (true, _) => Self::Green,
            (_, true) => Self::Yellow,
            _ => Self::Red,
        }
    }

    fn paint(self, text: &str) -> String {
        format!("\x1b[1;{}m{text}\x1b[0m", self as u8)
    }
}

struct Cell {
    number: String,
    color: Option<Color>,
    rest: String,
}

impl Cell {
    fn width(&self) -> usize {
        self.number.len() + self.rest.len()
    }

    fn shown(&self) -> String {
        let number =
            self.color.map_or_else(|| self.number.clone(), |color| color.paint(&self.number));
        number + &self.rest
    }
}

impl Report {
    /// Adds what the mount did between two readings of its metrics.
    pub fn add(&mut self, before: &Metrics, after: &Metrics) {
        let value = |metrics: &Metrics, name: &str| {
            metrics.get(&format!("juicefs_{name}")).copied().unwrap_or(0.0)
        };
        let increase = |name: &str| value(after, name) - value(before, name);
        for (title, kind, metric) in OPERATIONS {
            let count = increase(&format!("{metric}_total"));
            let seconds = increase(&format!("{metric}_sum"));
            let cost = if count > 0.0 { seconds * 1000.0 / count } else { 0.0 };
            self.items.push(Item {
                title,
                kind,
                value: count,
                unit: "operations",
                digits: 0,
                cost,
                cost_unit: "ms/op",
                threads: 1,
            });
        }
        let seconds = increase("uptime");
        let cpu_percent = if seconds > 0.0 { increase("cpu_usage") * 100.0 / seconds } else { 0.0 };
        let memory_mib = value(after, "memory") / MIB;
        self.process = Some(Process { seconds, cpu_percent, memory_mib });
    }

    pub fn text(&self, colors: bool) -> String {
        let mut text = "Benchmark finished!\n".to_owned();
        let _ = writeln!(
            text,
            "BlockSize: {}, BigFileSize: {}, SmallFileSize: {}, SmallFileCount: {}, NumThreads: {}",
            Bytes(self.block_size),
            Bytes(self.big_file_size),
            Bytes(self.small_file_size),
            self.small_file_count,
            self.threads
        );
        if let Some(Process { seconds, cpu_percent, memory_mib }) = &self.process {
            let green = |number: &f64| {
                let number = format!("{number:.1}");
                if colors { Color::Green.paint(&number) } else { number }
            };
            let (seconds, cpu, memory) = (green(seconds), green(cpu_percent), green(memory_mib));
            let _ = writeln!(text, "Time used: {seconds} s, CPU: {cpu}%, Memory: {memory} MiB");
        }
        text + &self.table(colors)
    }

    fn table(&self, colors: bool) -> String {
        let rows: Vec<[Cell; 3]> = self.items.iter().map(|item| item.cells(colors)).collect();
        let heads = ["ITEM", "VALUE", "COST"];
        let widths: Vec<usize> = (0..heads.len())
            .map(|at| {
                rows.iter().map(|row| row[at].width()).max().unwrap_or(0).max(heads[at].len())
            })
            .collect();
        let dashes: Vec<String> = widths.iter().map(|width| "-".repeat(width + 2)).collect();
        let rule = format!("+{}+\n", dashes.join("+"));
        let head: Vec<String> =
            heads.iter().zip(&widths).map(|(head, width)| format!("{head:^width$}")).collect();
        let mut table = format!("{rule}| {} |\n{rule}", head.join(" | "));
        for row in rows {
            let cells: Vec<String> = row
                .iter()
                .zip(&widths)
                .map(|(cell, width)| " ".repeat(width - cell.width()) + &cell.shown())
                .collect();
            let _ = writeln!(table, "| {} |", cells.join(" | "));
        }
        table + &rule
    }

    pub fn json(&self) -> Value {
        let items: Vec<Value> = self
            .items
            .iter()
            .map(|item| {
                json!({
                    "Item": item.title,
                    "Value": item.value,
                    "Unit": item.unit,
                    "Cost": item.cost,
                    "CostUnit": item.cost_unit,
                })
            })
            .collect();
        let mut shown = json!({
            "BlockSize": self.block_size,
            "BigFileSize": self.big_file_size,
            "SmallFileSize": self.small_file_size,
            "SmallFileCount": self.small_file_count,
            "Threads": self.threads,
            "Items": items,
        });
        if let Some(Process { seconds, cpu_percent, memory_mib }) = self.process {
            shown["Process"] =
                json!({ "Seconds": seconds, "CpuPercent": cpu_percent, "MemoryMiB": memory_mib });
        }
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let big = Files::new("b", 4 << 20, 1, 1 << 20, 2).unwrap();
        let small = Files::new("s", 128 << 10, 10, 1 << 20, 2).unwrap();
        Report {
            block_size: 1 << 20,
            big_file_size: 4 << 20,
            small_file_size: 128 << 10,
            small_file_count: 10,
            threads: 2,
            items: vec![
                Item::big("Write big file", "bigwr", &big, 0.5),
                Item::small("Stat file", "stat", &small, 0.01),
            ],
            process: None,
        }
    }

    #[test]
    fn the_table_has_the_columns_of_the_go_client() {
        let expected = "\
Benchmark finished!
BlockSize: 1.0 MiB, BigFileSize: 4.0 MiB, SmallFileSize: 128 KiB, SmallFileCount: 10, NumThreads: 2
+----------------+----------------+--------------+
|      ITEM      |     VALUE      |     COST     |
+----------------+----------------+--------------+
| Write big file |    16.00 MiB/s |  0.50 s/file |
|      Stat file | 2000.0 files/s | 1.00 ms/file |
+----------------+----------------+--------------+
";
        assert_eq!(report().text(false), expected);
    }

    #[test]
    fn colors_do_not_change_the_text() {
        let colored = report().text(true);
        assert!(colored.contains("\x1b[1;31m16.00\x1b[0m MiB/s"), "{colored}");
        let plain = without_escapes(&colored);
        assert_eq!(plain, report().text(false));
    }

    /// Removes everything from an escape character to the next `m`.
    fn without_escapes(text: &str) -> String {
        let mut parts = text.split('\x1b');
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |all, part| all + part.split_once('m').map_or("", |(_, rest)| rest))
    }

    #[test]
    fn json_has_the_same_values() {
        let json = report().json();
        assert_eq!(json["Items"][0]["Item"], "Write big file");
        assert!((json["Items"][0]["Value"].as_f64().unwrap() - 16.0).abs() < 1e-9);
        assert_eq!(
            (&json["Items"][1]["CostUnit"], &json["Threads"]),
            (&"ms/file".into(), &2.into())
        );
    }
}
