//! The stored attr, decoded on its own: it checks our encoder, so it must not use it.

use serde_json::{Value, json};

use super::ids::Ids;
use super::times::{self, Time};
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
        "times": times::show(type_mode >> 12 == DIR, atime, mtime, ctime),
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
