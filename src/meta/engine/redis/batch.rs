//! Batches: guards and commands that the server checks and applies in one step.

use std::collections::HashMap;
use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};
use redis::{Cmd, Value};

use super::fault::Fault;
use super::script;
use crate::meta::Timestamp;

/// Most arguments of one command in a script; Lua's stack takes some 8000.
pub(super) const MOST_ARGS: usize = 1000;

/// Where an attr holds its times, link count and length.
const TIMES: Range<usize> = 11..59;

/// Guards first, then commands, as `commit.lua` reads them.
#[derive(Default)]
pub(super) struct Batch {
    keys: Vec<String>,
    indexes: HashMap<String, usize>,
    /// Keys whose type a guard has shown to be right.
    checked: Vec<bool>,
    /// Keys that a command before writes.
    written: Vec<bool>,
    guards: Vec<Bytes>,
    guard_count: usize,
    commands: Vec<Bytes>,
    command_count: usize,
    reports: usize,
}

/// The type of value that a command works on.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Hash,
    List,
    Set,
    SortedSet,
    /// The command replaces whatever is there, or comes first and may fail.
    Any,
}

/// What the script answered.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The results of all reporting commands.
    Applied(Vec<i64>),
    /// This guard, counted from 1, did not hold.
    Conflict(i64),
    /// A command failed after `done` others had been applied.
    Failed { fault: Fault, key: String, done: i64 },
}

impl Batch {
    /// The value is `raw`; none = there is none.
    pub fn guard_value(&mut self, key: &str, raw: Option<&Bytes>) {
        match raw {
            Some(raw) => self.guard("V", key, [raw.clone()]),
            None => self.guard("v", key, []),
        }
    }

    /// The attr is that of the same place; none = there is none.
    pub fn guard_place(&mut self, key: &str, raw: Option<&Bytes>) {
        match raw {
            Some(raw) => {
                self.guard("P", key, [raw.slice(..TIMES.start), raw.slice(TIMES.end..)]);
            }
            None => self.guard("v", key, []),
        }
    }

    pub fn guard_field(&mut self, key: &str, field: &Bytes, raw: Option<&Bytes>) {
        match raw {
            Some(raw) => self.guard("F", key, [field.clone(), raw.clone()]),
            None => self.guard("f", key, [field.clone()]),
        }
    }

    /// The hash is exactly this.
    pub fn guard_hash(&mut self, key: &str, pairs: &[(Bytes, Bytes)]) {
        let mut args = vec![pairs.len().to_string().into()];
        args.extend(pairs.iter().flat_map(|(field, value)| [field.clone(), value.clone()]));
        self.guard("H", key, args);
    }

    pub fn guard_emptiness(&mut self, key: &str, empty: bool) {
        self.guard(if empty { "E" } else { "e" }, key, []);
    }

    /// The list's items up to `last` (-1 = all), joined.
    pub fn guard_list(&mut self, key: &str, last: i64, joined: Bytes) {
        self.guard("L", key, [last.to_string().into(), joined]);
    }

    pub fn guard_member(&mut self, key: &str, member: String, is: bool) {
        self.guard(if is { "M" } else { "m" }, key, [member.into()]);
    }

    pub fn guard_existence(&mut self, key: &str) {
        self.guard("X", key, []);
    }

    /// Applies a command.
    pub fn call(
        &mut self,
        kind: Kind,
        name: &'static str,
        key: &str,
        args: impl IntoIterator<Item = Bytes>,
    ) {
        self.command("C", kind, name, key, args);
    }

    /// As [`Batch::call`]; its result is among those of the outcome.
    pub fn report(
        &mut self,
        kind: Kind,
        name: &'static str,
        key: &str,
        args: impl IntoIterator<Item = Bytes>,
    ) {
        self.command("R", kind, name, key, args);
        self.reports += 1;
    }

    /// Adds to the link count of the attr, and moves its mtime and ctime forward.
    pub fn touch(&mut self, key: &str, links: i64, at: Option<Timestamp>) {
        let mut time = BytesMut::with_capacity(12);
        if let Some(at) = at {
            time.put_i64(at.sec);
            time.put_u32(at.nsec);
        }
        let index = self.index(key);
        // Once something is applied it is too late to find that there is nothing to touch.
        if !self.checked[index - 1] && !self.written[index - 1] {
            self.guard("N", key, []);
        }
        let args = [index.to_string().into(), links.to_string().into(), time.freeze()];
        self.commands.push("K".into());
        self.commands.extend(args);
        self.command_count += 1;
    }

    /// Takes the lock out of the session's `locked` set, unless it still holds it.
    pub fn tidy_lock(&mut self, lock: &str, locked: &str, stem: String) {
        self.lock_command("U", lock, locked, stem);
    }

    /// Drops what the session holds of the lock.
    pub fn release_lock(&mut self, lock: &str, locked: &str, stem: String) {
        self.lock_command("D", lock, locked, stem);
    }

    /// Reporting commands so far.
    pub fn reports(&self) -> usize {
        self.reports
    }

    pub fn is_empty(&self) -> bool {
        self.guard_count == 0 && self.command_count == 0
    }

    /// The call that checks and applies all.
    pub fn into_cmd(self) -> Cmd {
        let mut cmd = script::COMMIT.call(&self.keys);
        cmd.arg(self.guard_count);
        for arg in &self.guards {
            cmd.arg(&arg[..]);
        }
        cmd.arg(self.command_count);
        for arg in &self.commands {
            cmd.arg(&arg[..]);
        }
        cmd
    }

    fn guard(&mut self, letter: &'static str, key: &str, args: impl IntoIterator<Item = Bytes>) {
        let index = self.index(key);
        // All but these read the value by its type.
        self.checked[index - 1] |= !matches!(letter, "X" | "N");
        self.guards.push(letter.into());
        self.guards.push(index.to_string().into());
        self.guards.extend(args);
        self.guard_count += 1;
    }

    /// A script cannot be undone, so the one way in which commands of a sound client fail, a key of
    /// another type, is looked for before the first of them.
    fn command(
        &mut self,
        letter: &'static str,
        kind: Kind,
        name: &'static str,
        key: &str,
        args: impl IntoIterator<Item = Bytes>,
    ) {
        self.check(kind, key);
        let index = self.index(key);
        self.written[index - 1] = true;
        self.commands.extend([letter.into(), name.into(), index.to_string().into()]);
        let count_at = self.commands.len();
        self.commands.push(Bytes::new());
        self.commands.extend(args);
        self.commands[count_at] = (self.commands.len() - count_at - 1).to_string().into();
        self.command_count += 1;
    }

    fn lock_command(&mut self, letter: &'static str, lock: &str, locked: &str, stem: String) {
        self.check(Kind::Hash, lock);
        self.check(Kind::Set, locked);
        let (lock, locked) = (self.index(lock), self.index(locked));
        self.commands.extend([
            letter.into(),
            lock.to_string().into(),
            locked.to_string().into(),
            stem.into(),
        ]);
        self.command_count += 1;
    }

    fn check(&mut self, kind: Kind, key: &str) {
        let index = self.index(key);
        let wanted = match kind {
            Kind::Hash => "hash",
            Kind::List => "list",
            Kind::Set => "set",
            Kind::SortedSet => "zset",
            Kind::Any => return,
        };
        if !self.checked[index - 1] {
            self.guard("T", key, [wanted.into()]);
        }
    }

    /// Counted from 1, as Lua does.
    fn index(&mut self, key: &str) -> usize {
        if let Some(index) = self.indexes.get(key) {
            return *index;
        }
        self.keys.push(key.to_owned());
        self.checked.push(false);
        self.written.push(false);
        self.indexes.insert(key.to_owned(), self.keys.len());
        self.keys.len()
    }
}

impl Outcome {
    /// Reads the script's answer; none if it is not one.
    pub fn read(value: &Value) -> Option<Self> {
        let Value::Array(items) = value else { return None };
        let numbers = || items[1..].iter().map(int).collect::<Option<Vec<i64>>>();
        match int(items.first()?)? {
            0 => Some(Self::Applied(numbers()?)),
            1 => Some(Self::Conflict(*numbers()?.first()?)),
            2 => match &items[1..] {
                [Value::BulkString(error), Value::BulkString(key), done] => Some(Self::Failed {
                    fault: Fault::from_text(&String::from_utf8_lossy(error)),
                    key: String::from_utf8_lossy(key).into_owned(),
                    done: int(done)?,
                }),
                _ => None,
            },
            _ => None,
        }
    }

    /// The fault of a batch of which nothing was applied.
    pub fn judge(values: &[Value]) -> Option<Fault> {
        let value = values.first()?;
        match Self::read(value) {
            Some(Self::Failed { fault, done: 0, .. }) => Some(fault),
            Some(_) => None,
            None => Fault::of(value),
        }
    }
}

fn int(value: &Value) -> Option<i64> {
    match value {
        Value::Int(number) => Some(*number),
        _ => None,
    }
}
