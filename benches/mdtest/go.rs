//! The measurements of the Go client.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, Result, ensure};

use crate::Rates;
use crate::mdtest_tree::{DEPTH, DIRS, files_per_dir};

/// Runs `juicefs mdtest`, which logs its rates: `Created 13 dirs in 9ms (1400 dirs/s)`.
pub fn mdtest(url: &str, name: &str, width: usize, count: usize) -> Result<Rates> {
    let files = files_per_dir(count);
    let mut rates = Vec::new();
    for bytes in [0, 4096] {
        let mut command = Command::new(built("tests/peers/juicefs.sh")?);
        command.args(["mdtest", url, &format!("/{name}-{bytes}"), "--no-usage-report"]);
        command.args(["--no-bgjob", "--backup-meta", "0", "--metrics", "127.0.0.1:0"]);
        for (flag, value) in
            [("threads", width), ("dirs", DIRS), ("depth", DEPTH), ("files", files)]
        {
            command.args([format!("--{flag}"), value.to_string()]);
        }
        command.args(["--write", &bytes.to_string(), "--cache-dir", "memory"]);
        let said = run(command)?;
        let rate = |unit: &str| {
            let unit = format!(" {unit}/s)");
            said.lines()
                .find_map(|line| line.split_once(&unit)?.0.rsplit_once('(')?.1.parse().ok())
                .with_context(|| format!("mdtest printed no rate of{unit}\n{said}"))
        };
        if bytes == 0 {
            rates.push(("mdtest: mkdir".to_owned(), rate("dirs")?));
            rates.push(("mdtest: create".to_owned(), rate("files")?));
        } else {
            rates.push(("mdtest: create and write".to_owned(), rate("files")?));
        }
    }
    Ok(rates)
}

/// Runs our own Go program (`benches/peer`) on the Go client's metadata layer; it prints `PHASE RATE` lines.
pub fn ops(url: &str, name: &str, width: usize, count: usize) -> Result<Rates> {
    let mut command = Command::new(built("benches/peer/build.sh")?);
    command.args([url, name, &width.to_string(), &count.to_string()]);
    let said = run(command)?;
    let rate = |line: &str| {
        let (phase, rate) = line.split_once(' ')?;
        Some((phase.to_owned(), rate.parse().ok()?))
    };
    said.lines().map(|line| rate(line).with_context(|| format!("not a rate: {line}"))).collect()
}

/// Returns the program that a script builds on first use.
fn built(script: &'static str) -> Result<&'static Path> {
    static MDTEST: OnceLock<PathBuf> = OnceLock::new();
    static OPS: OnceLock<PathBuf> = OnceLock::new();
    let slot = if script.starts_with("tests") { &MDTEST } else { &OPS };
    if let Some(path) = slot.get() {
        return Ok(path);
    }
    let output = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join(script))
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| script)?;
    ensure!(output.status.success(), "{script} failed");
    let path = String::from_utf8(output.stdout)?.trim_end().into();
    Ok(slot.get_or_init(|| path))
}

fn run(mut command: Command) -> Result<String> {
    let output = command.env("AWS_EC2_METADATA_DISABLED", "true").output()?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    ensure!(output.status.success(), "{command:?}: {}\n{said}", output.status);
    Ok(said)
}
