//! Which figures are shown, in which sections and columns.

use anyhow::bail;
use chrono::Local;

use super::Figures;
use super::cell::{Colour, Paint};

/// How the current time is written.
const CLOCK: &str = "%m-%d %H:%M:%S";
const CLOCK_WIDTH: usize = 14;

pub struct Section {
    pub name: &'static str,
    items: Vec<Item>,
}

/// A figure and its column.
struct Item {
    /// At most five letters.
    nick: &'static str,
    figure: &'static str,
    shape: Shape,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// The time of day.
    Clock,
    /// Bytes at this moment.
    Level,
    /// Bytes by second.
    Bytes,
    /// A count by second.
    Count,
    /// Seconds of processors by second.
    Cpu,
    /// A count by second, and how long each took on the average.
    Times,
}

/// The sections of a schema's letters.
pub fn sections(letters: &str, verbosity: u8) -> anyhow::Result<Vec<Section>> {
    let sections = letters.chars().map(|letter| section(letter, verbosity > 0));
    let sections = sections.collect::<anyhow::Result<Vec<_>>>()?;
    if sections.is_empty() {
        bail!("--schema names no section");
    }
    Ok(sections)
}

fn section(letter: char, verbose: bool) -> anyhow::Result<Section> {
    use Shape::{Bytes, Clock, Count, Cpu, Level, Times};
    // Name, and for each column: whether it shows only with more verbosity, and what it is.
    let (name, items): (_, &[(bool, &str, &str, Shape)]) = match letter {
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
        other => bail!("--schema: there is no section {other:?}; use letters of tufmcog"),
    };
    let items = items.iter().filter(|(detail, ..)| verbose || !detail);
    let items = items.map(|(_, nick, figure, shape)| Item { nick, figure, shape: *shape });
    Ok(Section { name, items: items.collect() })
}

/// Two lines above the columns.
pub fn header(sections: &[Section], paint: Paint) -> String {
    let mut names = Vec::new();
    let mut columns = Vec::new();
    for section in sections {
        let mut nicks = Vec::new();
        for item in &section.items {
            match item.shape {
                Shape::Clock => nicks.push(centred(item.nick, CLOCK_WIDTH, ' ')),
                Shape::Times => {
                    nicks.push(centred(item.nick, 5, ' '));
                    nicks.push(" lat ".to_owned());
                }
                _ => nicks.push(centred(item.nick, 5, ' ')),
            }
        }
        let width = nicks.iter().map(String::len).sum::<usize>() + nicks.len() - 1;
        names.push(paint.dark(&centred(section.name, width, '-'), Colour::Blue));
        let nicks: Vec<String> =
            nicks.iter().map(|nick| paint.underlined(nick, Colour::Blue)).collect();
        columns.push(nicks.join(" "));
    }
    let bar = paint.dark("|", Colour::Blue);
    format!("{}\n{}", names.join(" "), columns.join(&bar))
}

/// What happened between two looks, `seconds` apart.
pub fn row(
    sections: &[Section],
    before: &Figures,
    now: &Figures,
    seconds: f64,
    paint: Paint,
) -> String {
    let sections = sections.iter().map(|section| {
        let cells = section.items.iter().map(|item| item.cell(before, now, seconds, paint));
        cells.collect::<Vec<_>>().join(" ")
    });
    sections.collect::<Vec<_>>().join(&paint.dark("|", Colour::Blue))
}

impl Section {
    /// The same for scripts.
    pub fn values(&self, before: &Figures, now: &Figures, seconds: f64) -> Vec<(String, f64)> {
        let mut values = Vec::new();
        for item in self.items.iter().filter(|item| item.shape != Shape::Clock) {
            values.push((item.nick.to_owned(), item.rate(before, now, seconds)));
            if item.shape == Shape::Times {
                values.push((format!("{}_lat", item.nick), item.latency(before, now)));
            }
        }
        values
    }
}

impl Item {
    fn cell(&self, before: &Figures, now: &Figures, seconds: f64, paint: Paint) -> String {
        let rate = self.rate(before, now, seconds);
        match self.shape {
            Shape::Clock => paint.dark(&Local::now().format(CLOCK).to_string(), Colour::White),
            Shape::Level | Shape::Bytes => paint.amount(rate, true),
            Shape::Count => paint.amount(rate, false),
            Shape::Cpu => paint.share(rate),
            Shape::Times => {
                let latency = paint.time(self.latency(before, now));
                format!("{} {latency}", paint.amount(rate, false))
            }
        }
    }

    fn rate(&self, before: &Figures, now: &Figures, seconds: f64) -> f64 {
        match self.shape {
            Shape::Clock => 0.0,
            Shape::Level => value(now, self.figure),
            Shape::Times => grown(before, now, &format!("{}_total", self.figure)) / seconds,
            Shape::Bytes | Shape::Count | Shape::Cpu => grown(before, now, self.figure) / seconds,
        }
    }

    /// Milliseconds, on the average.
    fn latency(&self, before: &Figures, now: &Figures) -> f64 {
        let count = grown(before, now, &format!("{}_total", self.figure));
        let took = grown(before, now, &format!("{}_sum", self.figure));
        if count > 0.0 { took * 1000.0 / count } else { 0.0 }
    }
}

fn value(figures: &Figures, name: &str) -> f64 {
    if let Some(value) = figures.get(name) {
        return *value;
    }
    // One by method, perhaps.
    let below = format!("{name}_");
    figures.iter().filter(|(name, _)| name.starts_with(&below)).map(|(_, value)| value).sum()
}

fn grown(before: &Figures, now: &Figures, name: &str) -> f64 {
    (value(now, name) - value(before, name)).max(0.0)
}

/// In the middle, with a letter around it.
fn centred(text: &str, width: usize, around: char) -> String {
    let left = width.saturating_sub(text.len()).div_ceil(2);
    let right = width.saturating_sub(text.len() + left);
    let side = |count| std::iter::repeat_n(around, count).collect::<String>();
    format!("{}{text}{}", side(left), side(right))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_header_is_that_of_juicefs() {
        let header = header(&sections("ufmco", 0).unwrap(), Paint::new(false));
        let expected = "\
------usage------ ----------fuse--------- ----meta--- -blockcache ---object--
 cpu   mem   buf | ops   lat   read write| ops   lat | read write| get   put ";
        assert_eq!(header, expected);
    }

    #[test]
    fn columns_stay_below_their_headers() {
        for verbosity in [0, 1] {
            let sections = sections("tufmcog", verbosity).unwrap();
            let header = header(&sections, Paint::new(false));
            let row = row(&sections, &Figures::new(), &Figures::new(), 1.0, Paint::new(false));
            let widths: Vec<usize> = header.lines().map(str::len).collect();
            assert_eq!(widths, [row.len(), row.len()]);
        }
    }

    #[test]
    fn rates_are_by_second_and_levels_as_they_are() {
        let sections = sections("uc", 0).unwrap();
        let figures = |cpu: f64, mem: f64, hit: f64| {
            Figures::from([
                ("juicefs_cpu_usage".to_owned(), cpu),
                ("juicefs_memory".to_owned(), mem),
                ("juicefs_blockcache_hit_bytes".to_owned(), hit),
            ])
        };
        let (before, now) = (figures(1.0, 9e9, 0.0), figures(2.0, 2048.0, 8192.0));
        let row = row(&sections, &before, &now, 4.0, Paint::new(false));
        assert_eq!(row, "25.0% 2048B    0 |2048B    0 ");
    }

    #[test]
    fn figures_by_method_are_added_up() {
        let figures = Figures::from([
            ("juicefs_transaction_restart_Mknod".to_owned(), 3.0),
            ("juicefs_transaction_restart_Write".to_owned(), 4.0),
        ]);
        assert!((value(&figures, "juicefs_transaction_restart") - 7.0).abs() < 1e-9);
    }

    #[test]
    fn an_unknown_section_is_named() {
        let error = sections("ux", 0).err().unwrap().to_string();
        assert!(error.contains("'x'"), "{error}");
        assert!(sections("", 0).is_err());
    }
}
