//! Questions to the user before a change that may surprise.

use std::io::{BufRead, Write};

use anyhow::bail;

/// Prints a warning and asks whether to proceed, unless `yes` was given. Fails if the answer is no.
pub fn confirm(warning: &str, yes: bool) -> anyhow::Result<()> {
    eprintln!("{warning}");
    if yes {
        return Ok(());
    }
    eprint!("Proceed anyway? [y/N]: ");
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    match answer.trim().to_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => bail!("nothing was changed"),
    }
}
