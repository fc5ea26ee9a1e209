//! The change logs of two volumes, compared line by line.

use serde_json::Value;

/// Operations of background jobs, whose position in the log varies.
const BACKGROUND: [&str; 3] = ["DELCHUNK(", "DELETESLICE(", "DELETEFILE("];

/// Removes the log from a normalised store and returns its lines.
pub fn take(stored: &mut Value) -> Vec<String> {
    let tables = stored.as_object_mut().unwrap();
    // The number of lines is not compared: taking ids and flushing usage add lines, too.
    tables.remove("txnLastLog");
    let log = tables.remove("txnLog").or_else(|| tables.remove("change_log")).unwrap_or_default();
    let lines = log.as_array().cloned().unwrap_or_default();
    let lines = lines.iter().map(|line| relevant_part(line.as_str().unwrap()));
    let (mut background, mut lines): (Vec<_>, Vec<_>) = lines
        .filter(|line| !is_count(line) && !is_batched(line) && !keeps_length(line))
        .partition(|line| BACKGROUND.iter().any(|op| line.starts_with(op)));
    // The Go client also logs a removal of nothing, and in SQL a new quota twice.
    let repeated = |line: &str| line.starts_with("REMOVEXATTR(") || line.starts_with("SETQUOTA(");
    lines.dedup_by(|one, two| one == two && repeated(one));
    background.sort();
    lines.append(&mut background);
    lines
}

/// Returns the first lines that differ.
pub fn differences(left: &[String], right: &[String]) -> Vec<String> {
    let missing = "nothing".to_owned();
    (0..left.len().max(right.len()))
        .map(|i| (i, left.get(i).unwrap_or(&missing), right.get(i).unwrap_or(&missing)))
        .filter(|(_, left, right)| left != right)
        .map(|(i, left, right)| format!("log line {i}: {left} != {right}"))
        .take(10)
        .collect()
}

/// Removes the irrelevant parts of a line.
fn relevant_part(line: &str) -> String {
    if line.starts_with("MOVE(") {
        return relevant_part_of_move(line);
    }
    match line.rsplit_once("):") {
        // The number of records of the chunk, which the Go client only has in SQL.
        Some((call, _)) if line.starts_with("WRITE(") => format!("{call})"),
        _ => line.to_owned(),
    }
}

/// Removes the trash hour of an exchange and of a move that replaced nothing: the Go client logs one,
/// though nothing goes to the trash.
fn relevant_part_of_move(line: &str) -> String {
    let parts: Vec<&str> = line.rsplitn(4, ',').collect();
    let [last, replaced, flags, before] = parts[..] else { return line.to_owned() };
    let (trash, ino) = last.split_once("):").unwrap();
    let trash = if flags == "2" || replaced == "none" { "none" } else { trash };
    format!("{before},{flags},{replaced},{trash}):{ino}")
}

/// Returns whether the length stays the same: then only the times change, which the Go client skips.
fn keeps_length(line: &str) -> bool {
    let arguments = line.strip_prefix("TRUNCATE(").unwrap_or_default();
    let parts: Vec<&str> = arguments.split(',').collect();
    matches!(parts[..], [_, old, new, _] if old == new)
}

/// Returns whether a line only counts usage: the Go client logs that as limits that change nothing.
fn is_count(line: &str) -> bool {
    line.starts_with("SETQUOTA(") && line.ends_with(",-1,-1)")
}

/// Returns whether a line is below the top of a clone, where the Go client logs directories only.
fn is_batched(line: &str) -> bool {
    line.starts_with("CLONE(") && line.contains(",false):")
}
