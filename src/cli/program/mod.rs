//! The beginning of the program, while it has but one thread: reading its arguments, going to the
//! background, logging.

mod helper;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};
use tracing::error;

use super::exit::Exit;
use super::launch::Caller;
use super::{Cli, Command, launch};
use crate::options::arguments;
use helper::Asked;

/// What mount(8) expects of its helpers: a mistake of the caller, and a mount that failed.
const HELPER_USAGE: u8 = 1;
const HELPER_FAILED: u8 = 32;

/// A program that has begun.
pub struct Program {
    cli: Cli,
    words: Vec<OsString>,
    caller: Option<Caller>,
}

impl Program {
    /// Answers how the program ends, if that is all there was to do.
    pub fn begin(words: Vec<OsString>) -> Result<Self, ExitCode> {
        match launch::passed_on() {
            Ok(Some((words, caller))) => {
                let cli = parse(&words, false)?;
                cli.log().start();
                if let Command::Mount(mount) = &cli.command {
                    mount.settle();
                }
                Ok(Self { cli, words, caller })
            }
            Ok(None) => Self::first(words),
            Err(error) => Err(failed(&error.context("what the first program passed on"))),
        }
    }

    fn first(words: Vec<OsString>) -> Result<Self, ExitCode> {
        let helps = helper::is_helper(words.first());
        let words = if helps { asked(&words)? } else { words };
        let words = arguments::spelled(&Cli::command(), words);
        let cli = parse(&words, helps)?;
        cli.log().start();
        if let Command::Mount(mount) = &cli.command {
            if let Err(error) = mount.is_sound() {
                eprintln!(
                    "jfs-mount: {error:#}\n\nFor more information, try 'jfs-mount mount --help'."
                );
                return Err(number(if helps { HELPER_USAGE } else { Exit::Usage.number() }));
            }
            if mount.is_background() {
                return Err(in_background(&cli, &words, helps));
            }
            if launch::has_password(&words) {
                return Err(failed(&launch::without_passwords(&words)));
            }
            mount.settle();
        }
        Ok(Self { cli, words, caller: None })
    }

    /// Does what was asked for. The rest of the program has any threads it likes.
    pub async fn run(self) -> ExitCode {
        let Self { cli, words, mut caller } = self;
        let Err(error) = cli.run(&words, &mut caller).await else { return Exit::Done.into() };
        let exit = Exit::of(&error);
        match caller.take() {
            Some(caller) => {
                error!("{error:#}");
                caller.failed(exit, &format!("{error:#}"));
            }
            None => eprintln!("jfs-mount: {error:#}"),
        }
        exit.into()
    }
}

fn asked(words: &[OsString]) -> Result<Vec<OsString>, ExitCode> {
    match helper::translate(&Cli::command(), words) {
        Ok(Asked::Mount(words)) => Ok(words),
        Ok(Asked::Nothing) => Err(Exit::Done.into()),
        Err(error) => {
            eprintln!("mount.juicefs: {error:#}");
            Err(number(HELPER_USAGE))
        }
    }
}

/// Clap says what is wrong, or what it was asked about.
fn parse(words: &[OsString], helps: bool) -> Result<Cli, ExitCode> {
    let matches = Cli::command().try_get_matches_from(words);
    matches.and_then(|matches| Cli::from_arg_matches(&matches)).map_err(|error| {
        let _ = error.print();
        match error.exit_code() {
            0 => Exit::Done.into(),
            _ if helps => number(HELPER_USAGE),
            _ => Exit::Usage.into(),
        }
    })
}

fn in_background(cli: &Cli, words: &[OsString], helps: bool) -> ExitCode {
    let Command::Mount(mount) = &cli.command else { return Exit::Failed.into() };
    if let Err(error) = mount.warn() {
        return failed(&error);
    }
    let log = mount.log_file();
    let (code, text) = match launch::in_background(words, &log) {
        Ok(answer) => answer,
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
    number(if helps { HELPER_FAILED } else { code })
}

fn failed(error: &anyhow::Error) -> ExitCode {
    eprintln!("jfs-mount: {error:#}");
    Exit::of(error).into()
}

fn number(code: u8) -> ExitCode {
    ExitCode::from(code)
}
