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

/// Parts the guards from the changes; as long as an instruction.
const FULL_STOP: &[u8] = b".\0\0\0";

/// Where an attr holds its times, link count and length.
const TIMES: Range<usize> = 11..59;

/// Guards first, then changes, as `commit.lua` reads them.
#[derive(Default)]
pub(super) struct Batch {
    keys: Vec<String>,
    indexes: HashMap<String, usize>,
    /// Keys whose type a guard has shown to be right.
    checked: Vec<bool>,
    /// Keys that a change before writes.
    written: Vec<bool>,
    guards: Program,
    changes: Program,
    reports: usize,
    /// Fields of hashes that are guarded together.
    guarded: Vec<Fields>,
}

/// Fields of the hash with this index, and which argument is the first of them.
struct Fields {
    index: usize,
    first: usize,
    names: Vec<Bytes>,
}

/// Instructions, and what they need besides.
#[derive(Default)]
struct Program {
    code: Vec<u8>,
    args: Vec<Bytes>,
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
            Some(raw) => self.guard(b'V', key, [raw.clone()]),
            None => self.guard(b'v', key, []),
        }
    }

    /// The attr is that of the same place; none = there is none.
    pub fn guard_place(&mut self, key: &str, raw: Option<&Bytes>) {
        match raw {
            Some(raw) => {
                self.guard(b'P', key, [raw.slice(..TIMES.start), raw.slice(TIMES.end..)]);
            }
            None => self.guard(b'v', key, []),
        }
    }

    /// The values are these.
    pub fn guard_values(&mut self, values: &[(&str, &Bytes)]) {
        for some in values.chunks(MOST_ARGS) {
            let mut args = self.known(some.iter().map(|(key, _)| *key));
            compare(&mut args, some.iter().map(|(_, raw)| *raw));
            self.guards.push(b'G', 1, args);
        }
    }

    /// There are no such values.
    pub fn guard_absence(&mut self, keys: &[&str]) {
        for some in keys.chunks(MOST_ARGS) {
            let args = self.known(some.iter().copied());
            self.guards.push(b'g', 1, args);
        }
    }

    /// The fields of a hash are these.
    pub fn guard_fields(&mut self, key: &str, fields: &[(&Bytes, &Bytes)]) {
        for some in fields.chunks(MOST_ARGS) {
            let fields: Vec<Bytes> = some.iter().map(|(field, _)| (*field).clone()).collect();
            let mut args = vec![some.len().to_string().into()];
            args.extend(fields.iter().cloned());
            compare(&mut args, some.iter().map(|(_, raw)| *raw));
            // After the program and the number of them.
            let (index, first) = (self.index(key), self.guards.args.len() + 3);
            self.guarded.push(Fields { index, first, names: fields });
            self.guard(b'B', key, args);
        }
    }

    pub fn guard_field(&mut self, key: &str, field: &Bytes, raw: Option<&Bytes>) {
        match raw {
            Some(raw) => self.guard(b'F', key, [field.clone(), raw.clone()]),
            None => self.guard(b'f', key, [field.clone()]),
        }
    }

    /// The hash is exactly this.
    pub fn guard_hash(&mut self, key: &str, pairs: &[(Bytes, Bytes)]) {
        let mut args = vec![pairs.len().to_string().into()];
        args.extend(pairs.iter().flat_map(|(field, value)| [field.clone(), value.clone()]));
        self.guard(b'H', key, args);
    }

    pub fn guard_emptiness(&mut self, key: &str, empty: bool) {
        self.guard(if empty { b'E' } else { b'e' }, key, []);
    }

    /// The list's items up to `last` (-1 = all), joined.
    pub fn guard_list(&mut self, key: &str, last: i64, joined: Bytes) {
        self.guard(b'L', key, [last.to_string().into(), joined]);
    }

    pub fn guard_member(&mut self, key: &str, member: String, is: bool) {
        self.guard(if is { b'M' } else { b'm' }, key, [member.into()]);
    }

    pub fn guard_existence(&mut self, key: &str) {
        self.guard(b'X', key, []);
    }

    /// Applies a command.
    pub fn call(
        &mut self,
        kind: Kind,
        name: &'static str,
        key: &str,
        args: impl IntoIterator<Item = Bytes>,
    ) {
        self.command(b'C', kind, name, key, args);
    }

    /// Removes fields of a hash. Those that a guard names, in its order, are not sent again.
    pub fn delete_fields(&mut self, key: &str, fields: &[Bytes]) {
        let index = self.index(key);
        for some in fields.chunks(MOST_ARGS) {
            let mut guarded = self.guarded.iter();
            if let Some(known) = guarded.find(|it| it.index == index && it.names == some) {
                let place = [known.first.to_string().into(), some.len().to_string().into()];
                self.changes.push(b'A', index, place);
                self.written[index - 1] = true;
            } else {
                self.call(Kind::Hash, "HDEL", key, some.iter().cloned());
            }
        }
    }

    /// Removes keys, whatever they hold.
    pub fn delete_all(&mut self, keys: &[String]) {
        // Those that guards name follow each other, and so do those that are named here first.
        let (known, new): (Vec<&str>, Vec<&str>) =
            keys.iter().map(String::as_str).partition(|key| self.indexes.contains_key(*key));
        for some in known.chunks(MOST_ARGS).chain(new.chunks(MOST_ARGS)) {
            let indexes: Vec<usize> = some.iter().map(|key| self.index(key)).collect();
            self.changes.push(b'Z', 1, named(&indexes));
        }
    }

    /// Writes values, whatever was there.
    pub fn set_all(&mut self, values: &[(String, Bytes)]) {
        for some in values.chunks(MOST_ARGS) {
            let indexes: Vec<usize> = some.iter().map(|(key, _)| self.index(key)).collect();
            let mut args = named(&indexes);
            args.extend(some.iter().map(|(_, value)| value.clone()));
            self.changes.push(b'Y', 1, args);
        }
    }

    /// Arguments that name keys whose type is known from here on.
    fn known<'k>(&mut self, keys: impl Iterator<Item = &'k str>) -> Vec<Bytes> {
        let indexes: Vec<usize> = keys.map(|key| self.index(key)).collect();
        for index in &indexes {
            self.checked[index - 1] = true;
        }
        named(&indexes)
    }

    /// As [`Batch::call`]; its result is among those of the outcome.
    pub fn report(
        &mut self,
        kind: Kind,
        name: &'static str,
        key: &str,
        args: impl IntoIterator<Item = Bytes>,
    ) {
        self.command(b'R', kind, name, key, args);
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
            self.guard(b'N', key, []);
        }
        self.changes.push(b'K', index, [links.to_string().into(), time.freeze()]);
    }

    /// Takes the lock out of the session's `locked` set, unless it still holds it.
    pub fn tidy_lock(&mut self, lock: &str, locked: &str, stem: String) {
        self.lock_command(b'U', lock, locked, stem);
    }

    /// Drops what the session holds of the lock.
    pub fn release_lock(&mut self, lock: &str, locked: &str, stem: String) {
        self.lock_command(b'D', lock, locked, stem);
    }

    /// Reporting commands so far.
    pub fn reports(&self) -> usize {
        self.reports
    }

    pub fn is_empty(&self) -> bool {
        self.guards.code.is_empty() && self.changes.code.is_empty()
    }

    /// The call that checks and applies all.
    pub fn into_cmd(self) -> Cmd {
        let mut cmd = script::COMMIT.call(&self.keys);
        cmd.arg([&self.guards.code[..], FULL_STOP, &self.changes.code[..]].concat());
        for arg in self.guards.args.iter().chain(&self.changes.args) {
            cmd.arg(&arg[..]);
        }
        cmd
    }

    fn guard(&mut self, letter: u8, key: &str, args: impl IntoIterator<Item = Bytes>) {
        let index = self.index(key);
        // All but these read the value by its type.
        self.checked[index - 1] |= !matches!(letter, b'X' | b'N');
        self.guards.push(letter, index, args);
    }

    /// A script cannot be undone, so the one way in which commands of a sound client fail, a key of
    /// another type, is looked for before the first of them.
    fn command(
        &mut self,
        letter: u8,
        kind: Kind,
        name: &'static str,
        key: &str,
        args: impl IntoIterator<Item = Bytes>,
    ) {
        self.check(kind, key);
        let index = self.index(key);
        self.written[index - 1] = true;
        let args: Vec<Bytes> = args.into_iter().collect();
        // What every create does has letters of its own, which spares the server some work.
        let own = match (letter, name, args.len()) {
            (b'C', "SET", 1) => Some(b'S'),
            (b'C', "HSET", 2) => Some(b'H'),
            (b'C', "INCRBY", 1) => Some(b'I'),
            _ => None,
        };
        if let Some(own) = own {
            self.changes.push(own, index, args);
        } else {
            let head = [name.into(), args.len().to_string().into()];
            self.changes.push(letter, index, head.into_iter().chain(args));
        }
    }

    fn lock_command(&mut self, letter: u8, lock: &str, locked: &str, stem: String) {
        self.check(Kind::Hash, lock);
        self.check(Kind::Set, locked);
        let (lock, locked) = (self.index(lock), self.index(locked));
        self.changes.push(letter, lock, [locked.to_string().into(), stem.into()]);
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
            self.guard(b'T', key, [wanted.into()]);
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

impl Program {
    /// A letter and the index of a key: four bytes.
    fn push(&mut self, letter: u8, index: usize, args: impl IntoIterator<Item = Bytes>) {
        let [_, high, middle, low] = u32::try_from(index).unwrap_or(u32::MAX).to_be_bytes();
        self.code.extend([letter, high, middle, low]);
        self.args.extend(args);
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

/// Arguments that name keys: how many and each, or how many less than none and the first of those
/// that follow each other.
fn named(indexes: &[usize]) -> Vec<Bytes> {
    let follow = indexes.windows(2).all(|pair| pair[0] + 1 == pair[1]);
    let mut args = Vec::with_capacity(2 * indexes.len() + 1);
    match indexes.first() {
        Some(first) if follow => args
            .extend([Bytes::from(format!("-{}", indexes.len())), Bytes::from(first.to_string())]),
        _ => {
            args.push(indexes.len().to_string().into());
            args.extend(indexes.iter().map(|index| Bytes::from(index.to_string())));
        }
    }
    args
}

/// Arguments that tell what values must be: their length and all of them joined, or, if they are of
/// several lengths, 0 and each.
fn compare<'b>(args: &mut Vec<Bytes>, values: impl Iterator<Item = &'b Bytes> + Clone) {
    let length = values.clone().next().map_or(0, Bytes::len);
    if length > 0 && values.clone().all(|value| value.len() == length) {
        let mut joined = BytesMut::with_capacity(length * values.size_hint().0);
        values.for_each(|value| joined.extend_from_slice(value));
        args.extend([Bytes::from(length.to_string()), joined.freeze()]);
    } else {
        args.push(Bytes::from_static(b"0"));
        args.extend(values.cloned());
    }
}

fn int(value: &Value) -> Option<i64> {
    match value {
        Value::Int(number) => Some(*number),
        _ => None,
    }
}
