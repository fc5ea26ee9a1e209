//! The client on a bare host: volumes and the tools beside them.

use std::process::ExitCode;

use clap::Parser;
use jfs::cli::Cli;
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let filter =
        EnvFilter::try_from_env("JFS_LOG").unwrap_or_else(|_| EnvFilter::new(cli.log_level()));
    let filter = without_requests(filter);
    // Results go to standard output, so that they can be piped; everything else does not.
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&anyhow::anyhow!(error).context("starting the runtime")),
    };
    match runtime.block_on(cli.run()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
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

fn fail(error: &anyhow::Error) -> ExitCode {
    eprintln!("jfs-mount: {error:#}");
    ExitCode::FAILURE
}
