//! Stored attributes. Decoded without our own code, which these tests check.

use serde_json::{Map, Value, json};

use super::ids::Ids;
use super::{Fields, hex};

pub const DIR: u64 = 2;

pub fn show(record: &[u8], ids: &mut Ids, acl: &dyn Fn(u64) -> Value) -> Value {
    let len = record.len();
    if !matches!(len, 72 | 73 | 80 | 81) {
        return json!(format!("{len} bytes: {}", hex(record)));
    }
    let mut fields = Fields(record);
    let flags = fields.number(1);
    let type_mode = fields.number(2);
    let (uid, gid) = (fields.number(4), fields.number(4));
    let mut time = || -> Time { (fields.number(8).cast_signed(), fields.number(4)) };
    let (atime, mtime, ctime) = (time(), time(), time());
    let (nlink, length, rdev) = (fields.number(4), fields.number(8), fields.number(4));
    let parent = fields.number(8);
    let acls = if len >= 80 { (fields.number(4), fields.number(4)) } else { (0, 0) };
    let tier = if len % 8 == 1 { fields.number(1) } else { 0 };
    json!({
        "bytes": len,
        "flags": flags,
        "type": type_mode >> 12,
        "mode": format!("{:o}", type_mode & 0o7777),
        "uid": uid,
        "gid": gid,
        "times": show_times(type_mode >> 12 == DIR, atime, mtime, ctime),
        "nlink": nlink,
        "length": length,
        "rdev": rdev,
        "parent": ids.ino(parent),
        "access_acl": acl(acls.0),
        "default_acl": acl(acls.1),
        "tier": tier,
        "pad": fields.number(1),
    })
}

/// Seconds and nanoseconds.
pub type Time = (i64, u64);

/// 2020-09-13. Clocks of test machines are later; scripts set explicit times before it.
const CLOCK: i64 = 1_600_000_000;

/// Shows the three times of a node: explicit ones literally, clock times as `now`, and, except for
/// directories, their order: `a=m<c`. Not for directories, since a client may leave a parent's times
/// alone if they are younger than 100 ms.
pub fn show_times(is_dir: bool, atime: Time, mtime: Time, ctime: Time) -> Value {
    let times = [("a", "atime", atime), ("m", "mtime", mtime), ("c", "ctime", ctime)];
    let mut out = Map::new();
    let mut clock = Vec::new();
    for (short, name, (sec, nsec)) in times {
        if sec < CLOCK {
            out.insert(name.to_owned(), json!(format!("{sec}.{nsec:09}")));
        } else {
            out.insert(name.to_owned(), json!("now"));
            clock.push(((sec, nsec), short));
        }
    }
    if !is_dir {
        clock.sort_by_key(|(time, _)| *time);
        let mut order = String::new();
        for (i, (time, short)) in clock.iter().enumerate() {
            if i > 0 {
                order.push(if clock[i - 1].0 == *time { '=' } else { '<' });
            }
            order.push_str(short);
        }
        out.insert("order".to_owned(), json!(order));
    }
    Value::Object(out)
}
