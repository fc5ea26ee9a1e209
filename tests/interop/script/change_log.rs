//! The change logs of two volumes, compared line by line.

use serde_json::Value;

/// What runs in the background comes at no certain volume.
const BACKGROUND: [&str; 3] = ["DELCHUNK(", "DELETESLICE(", "DELETEFILE("];

/// Takes the log out of a normalised store.
pub fn take(stored: &mut Value) -> Vec<String> {
    let tables = stored.as_object_mut().unwrap();
    // Not how many lines there are: taking ids and flushing usage are lines too.
    tables.remove("txnLastLog");
    let log = tables.remove("txnLog").or_else(|| tables.remove("change_log")).unwrap_or_default();
    let lines = log.as_array().cloned().unwrap_or_default();
    let lines = lines.iter().map(|line| of_note(line.as_str().unwrap()));
    let (mut background, mut lines): (Vec<_>, Vec<_>) = lines
        .filter(|line| !is_count(line) && !is_batched(line) && !keeps_length(line))
        .partition(|line| BACKGROUND.iter().any(|op| line.starts_with(op)));
    // The Go client also notes a removal that found nothing, and in SQL a new quota twice.
    let repeated = |line: &str| line.starts_with("REMOVEXATTR(") || line.starts_with("SETQUOTA(");
    lines.dedup_by(|one, two| one == two && repeated(one));
    background.sort();
    lines.append(&mut background);
    lines
}

/// The first lines that differ.
pub fn differences(left: &[String], right: &[String]) -> Vec<String> {
    let missing = "nothing".to_owned();
    (0..left.len().max(right.len()))
        .map(|i| (i, left.get(i).unwrap_or(&missing), right.get(i).unwrap_or(&missing)))
        .filter(|(_, left, right)| left != right)
        .map(|(i, left, right)| format!("log line {i}: {left} != {right}"))
        .take(10)
        .collect()
}

/// The line without what means nothing.
fn of_note(line: &str) -> String {
    if line.starts_with("MOVE(") {
        return of_move(line);
    }
    match line.rsplit_once("):") {
        // How many records the chunk has then; the Go client knows it in SQL only.
        Some((call, _)) if line.starts_with("WRITE(") => format!("{call})"),
        _ => line.to_owned(),
    }
}

/// An exchange, and a move that replaced nothing, put nothing into the trash, whichever hour the
/// Go client names.
fn of_move(line: &str) -> String {
    let parts: Vec<&str> = line.rsplitn(4, ',').collect();
    let [last, replaced, flags, before] = parts[..] else { return line.to_owned() };
    let (trash, ino) = last.split_once("):").unwrap();
    let trash = if flags == "2" || replaced == "none" { "none" } else { trash };
    format!("{before},{flags},{replaced},{trash}):{ino}")
}

/// A length that is set again changes the times of a file, which the Go client leaves alone.
fn keeps_length(line: &str) -> bool {
    let arguments = line.strip_prefix("TRUNCATE(").unwrap_or_default();
    let parts: Vec<&str> = arguments.split(',').collect();
    matches!(parts[..], [_, old, new, _] if old == new)
}

/// The Go client notes the counting of usage like limits that change nothing.
fn is_count(line: &str) -> bool {
    line.starts_with("SETQUOTA(") && line.ends_with(",-1,-1)")
}

/// Below the top of a clone, the Go client notes directories only.
fn is_batched(line: &str) -> bool {
    line.starts_with("CLONE(") && line.contains(",false):")
}
