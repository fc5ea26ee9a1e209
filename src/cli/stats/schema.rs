//! The sections and columns of the output, and the metrics they show.

use anyhow::bail;
use chrono::Local;

use super::cell_format::{Color, Paint};
use crate::cli::stats_file::Metrics;

/// How the current time is written.
const CLOCK: &str = "%m-%d %H:%M:%S";
const CLOCK_WIDTH: usize = 14;

pub struct Section {
    pub name: &'static str,
    columns: Vec<Column>,
}

/// A column and the metric that it shows.
struct Column {
    /// At most five letters.
    title: &'static str,
    metric: &'static str,
    kind: ColumnKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ColumnKind {
    /// The time of day.
    Clock,
    /// Bytes at this moment.
    Level,
    /// Bytes per second.
    Bytes,
    /// A count per second.
    Count,
    /// CPU seconds per second.
    Cpu,
    /// A count per second, and the average latency.
    Times,
}

/// Returns the sections for the letters of `--schema`.
pub fn sections(letters: &str, verbosity: u8) -> anyhow::Result<Vec<Section>> {
    let sections = letters.chars().map(|letter| section(letter, verbosity > 0));
    let sections = sections.collect::<anyhow::Result<Vec<_>>>()?;
    if sections.is_empty() {
        bail!("--schema is empty: use letters of tufmcog");
    }
    Ok(sections)
}

fn section(letter: char, verbose: bool) -> anyhow::Result<Section> {
    use ColumnKind::{Bytes, Clock, Count, Cpu, Level, Times};
    // The name, and for each column: whether it needs --verbosity, its title, metric and kind.
    let (name, columns): (_, &[(bool, &str, &str, ColumnKind)]) = match letter {
        't' => ("system", &[(false, "time", "", Clock)]),
        'u' => (
            "usage",
            &[
                (false, "cpu", "juicefs_cpu_usage", Cpu),
                (false, "mem", "juicefs_memory", Level),
                (false, "buf", "juicefs_used_buffer_size_bytes", Level),
                (true, "cache", "juicefs_store_cache_size_bytes", Level),
            ],
        ),
        'f' => (
            "fuse",
            &[
                (false, "ops", "juicefs_fuse_ops_durations_histogram_seconds", Times),
                (false, "read", "juicefs_fuse_read_size_bytes_sum", Bytes),
                (false, "write", "juicefs_fuse_written_size_bytes_sum", Bytes),
            ],
        ),
        'm' => (
            "meta",
            &[
                (false, "ops", "juicefs_meta_ops_durations_histogram_seconds", Times),
                (true, "txn", "juicefs_transaction_durations_histogram_seconds", Times),
                (true, "retry", "juicefs_transaction_restart", Count),
            ],
        ),
        'c' => (
            "blockcache",
            &[
                (false, "read", "juicefs_blockcache_hit_bytes", Bytes),
                (false, "write", "juicefs_blockcache_write_bytes", Bytes),
            ],
        ),
        'o' => (
            "object",
            &[
                (false, "get", "juicefs_object_request_data_bytes_GET", Bytes),
                (true, "get_c", "juicefs_object_request_durations_histogram_seconds_GET", Times),
                (false, "put", "juicefs_object_request_data_bytes_PUT", Bytes),
                (true, "put_c", "juicefs_object_request_durations_histogram_seconds_PUT", Times),
                (true, "del_c", "juicefs_object_request_durations_histogram_seconds_DELETE", Times),
            ],
        ),
        'g' => (
            "go",
            &[
                (false, "alloc", "juicefs_go_memstats_alloc_bytes", Level),
                (false, "sys", "juicefs_go_memstats_sys_bytes", Level),
            ],
        ),
        other => bail!("--schema: unknown section {other:?}; use letters of tufmcog"),
    };
    let columns = columns.iter().filter(|(detail, ..)| verbose || !detail);
    let columns = columns.map(|(_, title, metric, kind)| Column { title, metric, kind: *kind });
    Ok(Section { name, columns: columns.collect() })
}

/// Returns the two header lines.
pub fn header(sections: &[Section], paint: Paint) -> String {
    let mut names = Vec::new();
    let mut columns = Vec::new();
    for section in sections {
        let mut titles = Vec::new();
        for column in &section.columns {
            match column.kind {
                ColumnKind::Clock => titles.push(center(column.title, CLOCK_WIDTH, ' ')),
                ColumnKind::Times => {
                    titles.push(center(column.title, 5, ' '));
                    titles.push(" lat ".to_owned());
                }
                _ => titles.push(center(column.title, 5, ' ')),
            }
        }
        let width = titles.iter().map(String::len).sum::<usize>() + titles.len() - 1;
        names.push(paint.dark(&center(section.name, width, '-'), Color::Blue));
        let titles: Vec<String> =
            titles.iter().map(|title| paint.underlined(title, Color::Blue)).collect();
        columns.push(titles.join(" "));
    }
    let bar = paint.dark("|", Color::Blue);
    format!("{}\n{}", names.join(" "), columns.join(&bar))
}

/// Returns the line for what changed between two readings, `seconds` apart.
pub fn row(
    sections: &[Section],
    before: &Metrics,
    now: &Metrics,
    seconds: f64,
    paint: Paint,
) -> String {
    let sections = sections.iter().map(|section| {
        let cells = section.columns.iter().map(|column| column.cell(before, now, seconds, paint));
        cells.collect::<Vec<_>>().join(" ")
    });
    sections.collect::<Vec<_>>().join(&paint.dark("|", Color::Blue))
}

impl Section {
    /// Returns the values of a row for JSON.
    pub fn values(&self, before: &Metrics, now: &Metrics, seconds: f64) -> Vec<(String, f64)> {
        let mut values = Vec::new();
        for column in self.columns.iter().filter(|column| column.kind != ColumnKind::Clock) {
            values.push((column.title.to_owned(), column.rate(before, now, seconds)));
            if column.kind == ColumnKind::Times {
                values.push((format!("{}_lat", column.title), column.latency(before, now)));
            }
        }
        values
    }
}

impl Column {
    fn cell(&self, before: &Metrics, now: &Metrics, seconds: f64, paint: Paint) -> String {
        let rate = self.rate(before, now, seconds);
        match self.kind {
            ColumnKind::Clock => paint.dark(&Local::now().format(CLOCK).to_string(), Color::White),
            ColumnKind::Level | ColumnKind::Bytes => paint.amount(rate, true),
            ColumnKind::Count => paint.amount(rate, false),
            ColumnKind::Cpu => paint.share(rate),
            ColumnKind::Times => {
                let latency = paint.time(self.latency(before, now));
                format!("{} {latency}", paint.amount(rate, false))
            }
        }
    }

    fn rate(&self, before: &Metrics, now: &Metrics, seconds: f64) -> f64 {
        match self.kind {
            ColumnKind::Clock => 0.0,
            ColumnKind::Level => value(now, self.metric),
            ColumnKind::Times => increase(before, now, &format!("{}_total", self.metric)) / seconds,
            ColumnKind::Bytes | ColumnKind::Count | ColumnKind::Cpu => {
                increase(before, now, self.metric) / seconds
            }
        }
    }

    /// Returns the average in milliseconds.
    fn latency(&self, before: &Metrics, now: &Metrics) -> f64 {
        let count = increase(before, now, &format!("{}_total", self.metric));
        let took = increase(before, now, &format!("{}_sum", self.metric));
        if count > 0.0 { took * 1000.0 / count } else { 0.0 }
    }
}

fn value(metrics: &Metrics, name: &str) -> f64 {
    if let Some(value) = metrics.get(name) {
        return *value;
    }
    // It may be split by method.
    let below = format!("{name}_");
    metrics.iter().filter(|(name, _)| name.starts_with(&below)).map(|(_, value)| value).sum()
}

fn increase(before: &Metrics, now: &Metrics, name: &str) -> f64 {
    (value(now, name) - value(before, name)).max(0.0)
}

/// Centers `text`, padded with `around`.
fn center(text: &str, width: usize, around: char) -> String {
    let left = width.saturating_sub(text.len()).div_ceil(2);
    let right = width.saturating_sub(text.len() + left);
    let side = |count| std::iter::repeat_n(around, count).collect::<String>();
    format!("{}{text}{}", side(left), side(right))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_header_is_that_of_juicefs() {
        let header = header(&sections("ufmco", 0).unwrap(), Paint::new(false));
        let expected = "\
------usage------ ----------fuse--------- ----meta--- -blockcache ---object--
 cpu   mem   buf | ops   lat   read write| ops   lat | read write| get   put ";
        assert_eq!(header, expected);
    }

    #[test]
    fn columns_align_with_their_headers() {
        for verbosity in [0, 1] {
            let sections = sections("tufmcog", verbosity).unwrap();
            let header = header(&sections, Paint::new(false));
            let row = row(&sections, &Metrics::new(), &Metrics::new(), 1.0, Paint::new(false));
            let widths: Vec<usize> = header.lines().map(str::len).collect();
            assert_eq!(widths, [row.len(), row.len()]);
        }
    }

    #[test]
    fn rates_are_per_second_and_levels_are_current() {
        let sections = sections("uc", 0).unwrap();
        let metrics = |cpu: f64, mem: f64, hit: f64| {
            Metrics::from([
                ("juicefs_cpu_usage".to_owned(), cpu),
                ("juicefs_memory".to_owned(), mem),
                ("juicefs_blockcache_hit_bytes".to_owned(), hit),
            ])
        };
        let (before, now) = (metrics(1.0, 9e9, 0.0), metrics(2.0, 2048.0, 8192.0));
        let row = row(&sections, &before, &now, 4.0, Paint::new(false));
        assert_eq!(row, "25.0% 2048B    0 |2048B    0 ");
    }

    #[test]
    fn metrics_by_method_are_summed() {
        let metrics = Metrics::from([
            ("juicefs_transaction_restart_Mknod".to_owned(), 3.0),
            ("juicefs_transaction_restart_Write".to_owned(), 4.0),
        ]);
        assert!((value(&metrics, "juicefs_transaction_restart") - 7.0).abs() < 1e-9);
    }

    #[test]
    fn an_unknown_section_is_named() {
        let error = sections("ux", 0).err().unwrap().to_string();
        assert!(error.contains("'x'"), "{error}");
        assert!(sections("", 0).is_err());
    }
}
