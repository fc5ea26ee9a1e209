//! The start of the program, while it has a single thread: parsing arguments, moving to the
//! background, logging.

mod mount_helper;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};
use tracing::error;

use super::exit::Exit;
use super::relaunch::Parent;
use super::{Cli, Command, help, relaunch};
use crate::keeper;
use crate::options::go_syntax;
use mount_helper::HelperAction;

/// Exit statuses that mount(8) expects of its helpers: a wrong invocation, and a failed mount.
const HELPER_USAGE: u8 = 1;
const HELPER_FAILED: u8 = 32;

/// A program whose arguments are parsed and whose log is set up.
pub struct Program {
    cli: Cli,
    words: Vec<OsString>,
    parent: Option<Parent>,
}

impl Program {
    /// Starts the program. Returns its exit code as an error if there is nothing left to run.
    pub fn begin(words: Vec<OsString>) -> Result<Self, ExitCode> {
        // Before anything else: a keeper has no log and no runtime.
        if words.get(1).is_some_and(|word| word == "keeper") {
            let status = keeper::run::main(&words, 2, relaunch::command_without_passwords);
            return Err(exit_code(status));
        }
        match relaunch::received_arguments() {
            Ok(Some((words, parent))) => {
                let cli = parse(&words, false)?;
                cli.log().start();
                if let Command::Mount(mount) = &cli.command {
                    mount.set_up_process();
                }
                Ok(Self { cli, words, parent })
            }
            Ok(None) => Self::first(words),
            Err(error) => {
                Err(failed(&error.context("cannot receive the arguments from the first process")))
            }
        }
    }

    fn first(words: Vec<OsString>) -> Result<Self, ExitCode> {
        let is_helper = mount_helper::is_helper(words.first());
        let words = if is_helper { translate_for_mount(&words)? } else { words };
        let words = go_syntax::to_clap_syntax(&Cli::command(), words);
        let cli = parse(&words, is_helper)?;
        cli.log().start();
        if let Command::Mount(mount) = &cli.command {
            if let Err(error) = mount.validate() {
                eprintln!(
                    "jfs-mount: {error:#}\n\nFor more information, try 'jfs-mount mount --help'."
                );
                return Err(exit_code(if is_helper { HELPER_USAGE } else { Exit::Usage.number() }));
            }
            if mount.is_background() {
                return Err(in_background(&cli, &words, is_helper));
            }
            if relaunch::has_password(&words) {
                return Err(failed(&relaunch::exec_without_passwords(&words)));
            }
            mount.set_up_process();
        }
        Ok(Self { cli, words, parent: None })
    }

    /// Runs the subcommand. From here on the program may have any number of threads.
    pub async fn run(self) -> ExitCode {
        let Self { cli, words, mut parent } = self;
        let Err(error) = cli.run(&words, &mut parent).await else { return Exit::Done.into() };
        let exit = Exit::of(&error);
        match parent.take() {
            Some(parent) => {
                error!("{error:#}");
                parent.report_failure(exit, &format!("{error:#}"));
            }
            None => eprintln!("jfs-mount: {error:#}"),
        }
        exit.into()
    }
}

fn translate_for_mount(words: &[OsString]) -> Result<Vec<OsString>, ExitCode> {
    match mount_helper::translate(&Cli::command(), words) {
        Ok(HelperAction::Mount(words)) => Ok(words),
        Ok(HelperAction::Nothing) => Err(Exit::Done.into()),
        Err(error) => {
            eprintln!("mount.juicefs: {error:#}");
            Err(exit_code(HELPER_USAGE))
        }
    }
}

/// Parses the words; clap prints its own errors, and help and version texts.
fn parse(words: &[OsString], is_helper: bool) -> Result<Cli, ExitCode> {
    let matches = help::command().try_get_matches_from(words);
    matches.and_then(|matches| Cli::from_arg_matches(&matches)).map_err(|error| {
        let _ = error.print();
        match error.exit_code() {
            0 => Exit::Done.into(),
            _ if is_helper => exit_code(HELPER_USAGE),
            _ => Exit::Usage.into(),
        }
    })
}

fn in_background(cli: &Cli, words: &[OsString], is_helper: bool) -> ExitCode {
    let Command::Mount(mount) = &cli.command else { return Exit::Failed.into() };
    if let Err(error) = mount.log_warnings() {
        return failed(&error);
    }
    let log = mount.log_file();
    let (code, text) = match relaunch::start_in_background(words, &log) {
        Ok(report) => report,
        Err(error) => (Exit::Failed.number(), format!("{error:#}")),
    };
    if code == Exit::Done.number() {
        if !cli.quiet {
            eprintln!("jfs-mount: {text} (log: {})", log.display());
        }
        mount.update_fstab(&Cli::command(), words);
        return Exit::Done.into();
    }
    eprintln!("jfs-mount: {text}");
    exit_code(if is_helper { HELPER_FAILED } else { code })
}

fn failed(error: &anyhow::Error) -> ExitCode {
    eprintln!("jfs-mount: {error:#}");
    Exit::of(error).into()
}

fn exit_code(code: u8) -> ExitCode {
    ExitCode::from(code)
}
