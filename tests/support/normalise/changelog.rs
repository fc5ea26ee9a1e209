//! Lines of the change log, without clocks and ids.

use super::ids::Ids;

/// The kinds of an operation's arguments and, after the colon, of its result: inode (`i`), slice (`s`),
/// session (`n`), key of a quota (`q`), or transient (`t`: clock times, a client's description of
/// itself, lock owners, whether a parent's times were old enough to be updated). Everything else (`.`)
/// is literal.
const KINDS: &[(&str, &str)] = &[
    ("NEWSESSION", "ntt"),
    ("CLEANSESSION", "n"),
    ("CREATE", "i........t:i"),
    ("UNLINK", "i.i.t:i"),
    ("RMDIR", "i.i:i"),
    ("MOVE", "i.i..ii:i"),
    ("LINK", "ii.t:."),
    ("SETATTR", "i......tttttt."),
    ("TRUNCATE", "i..."),
    ("FALLOCATE", "i..."),
    ("WRITE", "i..s.tt:."),
    ("COPYFILERANGE", "i.i..:."),
    ("CLONE", "ii.i...:i"),
    ("ATTACH", "ii."),
    ("COMPACTCHUNK", "i....s."),
    ("DELCHUNK", "i."),
    ("DELETESLICE", "s."),
    ("FLOCK", "it."),
    ("SETLK", "it...t"),
    ("SETXATTR", "i..."),
    ("REMOVEXATTR", "i."),
    ("SETFACL", "i.."),
    ("SETQUOTA", ".q.."),
    ("DELQUOTA", ".q"),
];

/// Lines about when a client took ids or flushed usage, not about what it did.
const INCIDENTAL: [&str; 2] = ["INCR_COUNTER", "DIRSTAT"];

/// Returns the lines about operations, in order.
pub fn show_all<'a>(lines: impl Iterator<Item = &'a [u8]>, ids: &mut Ids) -> Vec<String> {
    let lines = lines.map(|line| show(&super::text(line), ids));
    lines.filter(|line| !INCIDENTAL.iter().any(|op| line.starts_with(op))).collect()
}

/// Normalises `{time}|OP(args):result|({sid},{n})` to `OP(args):result`; other lines stay raw.
fn show(line: &str, ids: &mut Ids) -> String {
    // A name may contain a bar, so only the outer two count.
    let Some((call, _)) = line.split_once('|').and_then(|(_, rest)| rest.rsplit_once('|')) else {
        return format!("unknown shape: {line}");
    };
    let (Some((op, rest)), Some(end)) = (call.split_once('('), call.rfind(')')) else {
        return format!("unknown shape: {line}");
    };
    let Some((_, kinds)) = KINDS.iter().find(|(name, _)| *name == op) else {
        return call.to_owned();
    };
    let (kinds, result) = kinds.split_once(':').unwrap_or((kinds, "."));
    let args = &rest[..end - op.len() - 1];
    let of_dir = args.starts_with("0,");
    let args: Vec<String> = args
        .split(',')
        .zip(kinds.chars().chain(std::iter::repeat('.')))
        .map(|(arg, kind)| argument(arg, if kind == 'q' && of_dir { 'i' } else { kind }, ids))
        .collect();
    let answer = call[end + 1..].strip_prefix(':').map(|answer| {
        let kind = result.chars().next().unwrap_or('.');
        format!(":{}", argument(answer, kind, ids))
    });
    format!("{op}({}){}", args.join(","), answer.unwrap_or_default())
}

fn argument(arg: &str, kind: char, ids: &mut Ids) -> String {
    match (kind, arg.parse()) {
        ('i', Ok(ino)) => ids.ino(ino),
        ('s', Ok(slice)) => ids.slice(slice),
        ('n', Ok(sid)) => ids.sid(sid),
        ('t', _) => "t".to_owned(),
        _ => arg.to_owned(),
    }
}
