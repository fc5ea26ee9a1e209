//! The log of a program, on standard error.

use std::fmt;
use std::io::{self, IsTerminal};

use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{Format, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;
use uuid::Uuid;

/// What to log, and in which format.
pub struct Log {
    /// Which lines to log, unless the variable `JFS_LOG` is set.
    pub filter: String,
    /// A prefix for every line. `random` stands for a new UUID.
    pub id: Option<String>,
    pub color: bool,
    /// One JSON object per line, for other programs to read.
    pub json: bool,
}

impl Log {
    /// Starts logging to standard error: standard output has only results, so that it can be piped.
    pub fn start(self) {
        let filter = EnvFilter::try_from_env("JFS_LOG");
        let filter = without_requests(filter.unwrap_or_else(|_| EnvFilter::new(self.filter)));
        let color = self.color
            && io::stderr().is_terminal()
            && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let id = self.id.map(|id| match id.as_str() {
            "random" => format!("[{}] ", Uuid::new_v4()),
            id => format!("[{id}] "),
        });
        let lines = PrefixedFormat { prefix: id.unwrap_or_default(), inner: Format::default() };
        let plain = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
        // Fails only in tests, if another test has set a subscriber before.
        let _ = if self.json {
            tracing::subscriber::set_global_default(plain.json().flatten_event(true).finish())
        } else {
            let shown = plain.with_ansi(color).event_format(lines);
            tracing::subscriber::set_global_default(shown.finish())
        };
    }
}

/// Drops the debug lines of the S3 client, whatever the filter says: they contain the requests with
/// their signatures.
fn without_requests(filter: EnvFilter) -> EnvFilter {
    let quiet = ["aws_config", "aws_runtime", "aws_sdk_s3", "aws_sigv4", "aws_smithy_runtime"];
    quiet
        .iter()
        .filter_map(|target| format!("{target}=info").parse().ok())
        .fold(filter, EnvFilter::add_directive)
}

/// A format with a prefix on each line.
struct PrefixedFormat {
    prefix: String,
    inner: Format,
}

impl<S, N> FormatEvent<S, N> for PrefixedFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        writer.write_str(&self.prefix)?;
        self.inner.format_event(context, writer, event)
    }
}
