//! Lines of the change log, without clocks and ids.

use super::ids::Ids;

/// Which arguments of an operation are inodes (`i`), slices (`s`), sessions (`n`) or clock times
/// (`t`), and, after the colon, what its result is. Everything else (`.`) is literal.
const KINDS: &[(&str, &str)] = &[
    ("NEWSESSION", "nt."),
    ("CLEANSESSION", "n"),
    ("CREATE", "i.........:i"),
    ("UNLINK", "i.i..:i"),
    ("RMDIR", "i.i:i"),
    ("MOVE", "i.i..ii:i"),
    ("LINK", "ii..:."),
    ("SETATTR", "i......tttttt."),
    ("TRUNCATE", "i..."),
    ("FALLOCATE", "i..."),
    ("WRITE", "i..s.tt:."),
    ("COPYFILERANGE", "i.i..:."),
    ("CLONE", "ii.i...:i"),
    ("ATTACH", "ii."),
    ("COMPACTCHUNK", "i....s."),
    ("DELCHUNK", "i."),
    ("FLOCK", "it."),
    ("SETLK", "it...t"),
    ("SETXATTR", "i..."),
    ("REMOVEXATTR", "i."),
    ("SETFACL", "i.."),
];

/// `{time}|OP(args):result|({sid},{n})` as `OP(args):result`; raw if it has no such shape.
pub fn show(line: &str, ids: &mut Ids) -> String {
    // A name may hold a bar, so only the outer two count.
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
    let args: Vec<String> = args
        .split(',')
        .zip(kinds.chars().chain(std::iter::repeat('.')))
        .map(|(arg, kind)| argument(arg, kind, ids))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_loses_clock_session_and_ids_only() {
        let line = "1794789868.461127873|CREATE(2,cl,0,0,1,438,18,,linux,true):12|(1,2)";
        let mut ids = Ids::default();
        assert_eq!(show(line, &mut ids), "CREATE(ino1,cl,0,0,1,438,18,,linux,true):ino2");
        let line = "1794789868.465282202|UNLINK(2,cl,9223372032828243969,false,false):12|(1,4)";
        assert_eq!(show(line, &mut ids), "UNLINK(ino1,cl,hour1,false,false):ino2");
        let line = "1794789868.465282202|RMDIR(2,a|b,0):12|(1,5)";
        assert_eq!(show(line, &mut ids), "RMDIR(ino1,a|b,none):ino2");
    }
}
