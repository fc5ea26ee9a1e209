//! Dumps that are damaged, truncated or made to do harm: a clear error, and nothing is loaded.

use std::fs;

use crate::fixture::{dump_by, dump_to, fill, load_by};
use crate::support::fixture::{Fixture, with};

#[test]
fn a_hostile_json_dump_loads_nothing() {
    with(Fixture::redis, |source| {
        fill(source);
        let good = dump_by(true, source.url(), &[]);
        let small = r#""attr": {"inode":"#;
        let path = source.folder().join("dump.json");
        let target = Fixture::sqlite();
        let first = good.find(small).unwrap();
        let replace = |from: &str, to: &str| good.replacen(from, to, 1);
        for (name, dump, error) in [
            ("truncated", good[..good.len() / 2].to_owned(), "truncated"),
            ("cut at its end", good[..good.len() - 3].to_owned(), "truncated"),
            ("with text after it", format!("{good}x"), "expected the end"),
            ("without a value", replace("\"gid\":0", "\"gid\":"), "byte "),
            ("a name with a slash", replace("\"small\": {", "\"a/b\": {"), "a/b"),
            ("a name with an escaped slash", replace("\"small\": {", "\"..%2Fb\": {"), "invalid"),
            ("a name that is a parent", replace("\"small\": {", "\"..\": {"), "invalid"),
            ("a name twice", replace("\"small\": {", "\"none\": {"), "second"),
            ("a huge number", replace("\"mode\":", "\"mode\":99999999999999999999"), "byte "),
            ("a negative counter", replace("\"nextChunk\": ", "\"nextChunk\": -"), "nextChunk"),
            ("no counters", replace("\"Counters\"", "\"Other\""), "Counters is missing"),
            ("no setting", replace("\"Setting\"", "\"Other\""), "Setting is missing"),
            ("no tree", replace("\"FSTree\"", "\"Other\""), "FSTree is missing"),
            (
                "inode 0",
                format!(
                    "{}{small}0{}",
                    &good[..first + 400 + good[first + 400..].find(small).unwrap()],
                    &good[first
                        + 400
                        + good[first + 400..].find(small).unwrap()
                        + small.len()
                        + 1..]
                ),
                "inode 0",
            ),
        ] {
            assert!(dump != good, "{name}");
            fs::write(&path, dump).unwrap();
            let refused = load_by(true, target.url(), &path, &[]).refused();
            assert!(refused.stderr.contains(error), "{name}: {refused}");
            assert!(refused.stderr.contains("nothing was loaded"), "{name}: {refused}");
        }
        fs::write(&path, &good).unwrap();
        load_by(true, target.url(), &path, &[]).ok();
        assert_eq!(dump_by(true, target.url(), &[]), good);
    });
}

#[test]
fn a_hostile_binary_dump_loads_nothing() {
    with(Fixture::redis, |source| {
        fill(source);
        let path = source.folder().join("dump.bin");
        dump_to(true, source.url(), &path, &["--binary"]);
        let good = fs::read(&path).unwrap();
        let target = Fixture::sqlite();
        let changed = |at: usize, byte: u8| {
            let mut dump = good.clone();
            dump[at] = byte;
            dump
        };
        let at =
            |needle: &[u8]| good.windows(needle.len()).position(|window| window == needle).unwrap();
        for (name, dump, error) in [
            ("empty", Vec::new(), "truncated"),
            ("truncated", good[..good.len() / 2].to_vec(), "byte "),
            ("without its footer", good[..good.len() - 100].to_vec(), "footer"),
            ("of text", b"{\"Setting\": {}}".to_vec(), "not a binary dump"),
            ("with an endless segment", changed(4, 0xFF), "byte "),
            ("with a slash in a name", changed(at(b"elsewhere") + 3, b'/'), "invalid"),
        ] {
            fs::write(&path, dump).unwrap();
            let refused = load_by(true, target.url(), &path, &["--binary"]).refused();
            assert!(refused.stderr.contains(error), "{name}: {refused}");
            assert!(refused.stderr.contains("nothing was loaded"), "{name}: {refused}");
        }
        fs::write(&path, &good).unwrap();
        load_by(true, target.url(), &path, &["--binary"]).ok();
        assert_eq!(dump_by(true, target.url(), &[]), dump_by(true, source.url(), &[]));
    });
}
