//! What the program says beside its results.

use std::fmt;
use std::io::{self, IsTerminal};

use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{Format, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;
use uuid::Uuid;

/// What is logged, and how.
pub struct Log {
    /// Unless the environment says otherwise.
    pub filter: String,
    /// In front of every line; `random` stands for one that nobody else has.
    pub id: Option<String>,
    pub color: bool,
    /// One JSON object a line, for programs that read it.
    pub json: bool,
}

impl Log {
    /// Results go to standard output, so that they can be piped; everything else does not.
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
        let lines = Marked { id: id.unwrap_or_default(), inner: Format::default() };
        let plain = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
        // Only a test could have set another before.
        let _ = if self.json {
            tracing::subscriber::set_global_default(plain.json().flatten_event(true).finish())
        } else {
            let shown = plain.with_ansi(color).event_format(lines);
            tracing::subscriber::set_global_default(shown.finish())
        };
    }
}

/// The S3 client traces requests with all that signs them: no log shows that, whatever is asked for.
fn without_requests(filter: EnvFilter) -> EnvFilter {
    let quiet = ["aws_config", "aws_runtime", "aws_sdk_s3", "aws_sigv4", "aws_smithy_runtime"];
    quiet
        .iter()
        .filter_map(|target| format!("{target}=info").parse().ok())
        .fold(filter, EnvFilter::add_directive)
}

/// Lines with something in front.
struct Marked {
    id: String,
    inner: Format,
}

impl<S, N> FormatEvent<S, N> for Marked
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
        writer.write_str(&self.id)?;
        self.inner.format_event(context, writer, event)
    }
}
