//! Progress of long work: bars on a terminal, plain lines otherwise.

use std::io::{IsTerminal, stderr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::options::sizes::{Bytes, Count};

/// Between two plain lines about the same work.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// The progress bars of one command.
pub struct Progress {
    /// `None` if stderr is not a terminal.
    bars: Option<MultiProgress>,
}

impl Progress {
    pub fn new() -> Self {
        Self { bars: stderr().is_terminal().then(MultiProgress::new) }
    }

    /// Adds a bar that counts bytes.
    pub fn bytes(&self, what: &'static str, total: u64) -> Bar {
        self.bar(what, total, true, "{msg:30} {wide_bar} {bytes:>10}/{total_bytes:10} {eta:>4}")
    }

    /// Adds a bar that counts items.
    pub fn count(&self, what: &'static str, total: u64) -> Bar {
        self.bar(what, total, false, "{msg:30} {wide_bar} {pos:>10}/{len:10} {eta:>4}")
    }

    fn bar(&self, what: &'static str, total: u64, in_bytes: bool, style: &str) -> Bar {
        let drawn = self.bars.as_ref().map(|bars| {
            let style = ProgressStyle::with_template(style);
            let bar = ProgressBar::new(total).with_message(what);
            bars.add(style.map_or_else(|_| bar.clone(), |style| bar.clone().with_style(style)))
        });
        let started = Instant::now();
        Bar {
            what,
            total,
            in_bytes,
            drawn,
            done: AtomicU64::new(0),
            lines_printed: AtomicU64::new(0),
            started,
        }
    }
}

impl Progress {
    /// Adds a counter of things of unknown number, with their bytes if `data` names them.
    pub fn tally(&self, what: &'static str, data: Option<&'static str>) -> Tally {
        let drawn = self.bars.as_ref().map(|bars| {
            let line = bars.add(ProgressBar::new_spinner());
            line.enable_steady_tick(Duration::from_millis(200));
            line
        });
        let (count, bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        Tally { what, data, drawn, count, bytes, lines: AtomicU64::new(0), started: Instant::now() }
    }
}

/// Counts things, and shows how many: on a terminal at once, otherwise in a line every ten seconds.
pub struct Tally {
    what: &'static str,
    data: Option<&'static str>,
    drawn: Option<ProgressBar>,
    count: AtomicU64,
    bytes: AtomicU64,
    /// Number of line intervals already reported.
    lines: AtomicU64,
    started: Instant,
}

impl Tally {
    pub fn add(&self, count: u64) {
        self.add_data(count, 0);
    }

    pub fn add_data(&self, count: u64, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.count.fetch_add(count, Ordering::Relaxed);
        if let Some(line) = &self.drawn {
            return line.set_message(self.line());
        }
        let due = self.started.elapsed().as_secs() / LINE_INTERVAL.as_secs();
        if due > self.lines.fetch_max(due, Ordering::Relaxed) {
            eprintln!("{}", self.line());
        }
    }

    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub fn reset(&self) {
        self.count.store(0, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
    }

    fn line(&self) -> String {
        let (what, count) = (self.what, self.count());
        match self.data {
            Some(data) => format!("{what}: {count}, {data}: {}", Bytes(self.bytes())),
            None => format!("{what}: {count}"),
        }
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        if let Some(line) = &self.drawn {
            line.finish();
        }
    }
}

/// One piece of work, possibly done by many threads.
pub struct Bar {
    what: &'static str,
    total: u64,
    in_bytes: bool,
    drawn: Option<ProgressBar>,
    done: AtomicU64,
    /// Number of line intervals already reported.
    lines_printed: AtomicU64,
    started: Instant,
}

impl Bar {
    /// Adds to the amount done.
    pub fn add(&self, more: u64) {
        let done = self.done.fetch_add(more, Ordering::Relaxed) + more;
        self.show(done);
    }

    /// Sets the amount done.
    pub fn set(&self, done: u64) {
        self.done.store(done, Ordering::Relaxed);
        self.show(done);
    }

    pub fn finish(self) {
        match &self.drawn {
            Some(bar) => bar.finish(),
            None => eprintln!("{}: done", self.what),
        }
    }

    fn show(&self, done: u64) {
        if let Some(bar) = &self.drawn {
            return bar.set_position(done);
        }
        let due = self.started.elapsed().as_secs() / LINE_INTERVAL.as_secs();
        if due > self.lines_printed.fetch_max(due, Ordering::Relaxed) {
            eprintln!("{}", self.line(done));
        }
    }

    fn line(&self, done: u64) -> String {
        let (what, total) = (self.what, self.total);
        if self.in_bytes {
            return format!("{what}: {} of {}", Bytes(done), Bytes(total));
        }
        let count = |number: u64| Count(i64::try_from(number).unwrap_or(i64::MAX));
        format!("{what}: {} of {}", count(done), count(total))
    }
}

/// Runs work of unknown size, and shows how far it is until it ends.
pub async fn show_while<T>(work: impl Future<Output = T>, text: impl Fn() -> String) -> T {
    let mut activity = Activity::new();
    let mut tick = tokio::time::interval(Duration::from_millis(200));
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            done = &mut work => {
                activity.finish();
                return done;
            }
            _ = tick.tick() => activity.show(&text),
        }
    }
}

/// Work of unknown size: a line of text that changes.
pub struct Activity {
    line: ProgressBar,
    printed: Instant,
}

impl Activity {
    pub fn new() -> Self {
        let line = ProgressBar::new_spinner();
        line.enable_steady_tick(Duration::from_millis(100));
        Self { line, printed: Instant::now() }
    }

    /// Shows the text on a terminal, otherwise prints it every ten seconds.
    pub fn show(&mut self, text: impl FnOnce() -> String) {
        if !self.line.is_hidden() {
            self.line.set_message(text());
        } else if self.printed.elapsed() >= LINE_INTERVAL {
            eprintln!("{}", text());
            self.printed = Instant::now();
        }
    }

    pub fn finish(self) {
        self.line.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_show_the_amount_done_and_the_total() {
        let plain = Progress { bars: None };
        assert_eq!(plain.bytes("copying", 2 << 20).line(1 << 20), "copying: 1.0 MiB of 2.0 MiB");
        assert_eq!(plain.count("making", 2000).line(1000), "making: 1,000 of 2,000");
    }

    #[test]
    fn work_of_many_threads_adds_up() {
        let bar = Progress { bars: None }.count("working", 10);
        std::thread::scope(|scope| {
            for _ in 0..10 {
                scope.spawn(|| bar.add(1));
            }
        });
        assert_eq!(bar.done.load(Ordering::Relaxed), 10);
        bar.finish();
    }
}
