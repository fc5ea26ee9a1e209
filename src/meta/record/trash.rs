//! Names in the trash.
use crate::meta::{Ino, Name};
pub fn hour_name(sec: i64) -> Name { let _ = sec; Name::stored("x") }
pub fn parse_hour(name: &Name) -> Option<i64> { let _ = name; None }
pub fn entry_name(dir: Ino, ino: Ino, name: &Name) -> Name { let _ = (dir, ino); name.clone() }
pub fn parse_entry(name: &Name) -> Option<(Ino, Ino, Name)> { let _ = name; None }
