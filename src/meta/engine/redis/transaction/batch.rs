//! A batch of guards and commands that the server checks and applies atomically, by `commit.lua`.

use std::collections::HashMap;
use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};
use redis::{Cmd, Value};

use super::super::client::server_error::ServerError;
use super::super::scripts;
use crate::meta::Timestamp;

/// The most arguments of one command in a script. Lua's stack has room for some 8000.
pub(super) const MAX_ARGS: usize = 1000;

/// Separates the guards from the changes; as long as an instruction.
const END_OF_GUARDS: &[u8] = b".\0\0\0";

/// The bytes of an attr with its times, link count and length.
const TIMES_TO_LENGTH: Range<usize> = 11..59;

/// Guards first, then changes, as `commit.lua` reads them.
#[derive(Default)]
pub(in super::super) struct Batch {
    keys: Vec<String>,
    indexes: HashMap<String, usize>,
    /// For each key, whether a guard checks its type.
    type_checked: Vec<bool>,
    /// For each key, whether an earlier change writes it.
    written: Vec<bool>,
    guards: Program,
    changes: Program,
    reports: usize,
    /// Hash fields that one instruction guards together.
    guarded: Vec<GuardedFields>,
}

/// Fields of the hash with the key `index`. `first` is the position of the first one in ARGV.
struct GuardedFields {
    index: usize,
    first: usize,
    names: Vec<Bytes>,
}

/// Instructions, and their arguments.
#[derive(Default)]
struct Program {
    code: Vec<u8>,
    args: Vec<Bytes>,
}

/// The type of value that a command works on.
#[derive(Clone, Copy)]
pub(in super::super) enum ValueType {
    Hash,
    List,
    Set,
    SortedSet,
    /// The command replaces any value, or comes first and may fail.
    Any,
}

/// The result of the script.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The results of all reporting commands.
    Applied(Vec<i64>),
    /// The guard with this number, counted from 1, does not hold.
    Conflict(i64),
    /// A command failed after `done` others had been applied.
    Failed { error: ServerError, key: String, done: i64 },
}

impl Batch {
    /// Requires that the value is `raw`; none means that the key does not exist.
    pub fn guard_value(&mut self, key: &str, raw: Option<&Bytes>) {
        match raw {
            Some(raw) => self.guard(b'V', key, [raw.clone()]),
            None => self.guard(b'v', key, []),
        }
    }

    /// Requires that the attr equals `raw` apart from its times, link count and length; none means
    /// that the key does not exist.
    pub fn guard_place(&mut self, key: &str, raw: Option<&Bytes>) {
        match raw {
            Some(raw) => {
                self.guard(
                    b'P',
                    key,
                    [raw.slice(..TIMES_TO_LENGTH.start), raw.slice(TIMES_TO_LENGTH.end..)],
                );
            }
            None => self.guard(b'v', key, []),
        }
    }

    /// Requires these values.
    pub fn guard_values(&mut self, values: &[(&str, &Bytes)]) {
        for some in values.chunks(MAX_ARGS) {
            let mut args = self.type_checked_keys(some.iter().map(|(key, _)| *key));
            push_expected(&mut args, some.iter().map(|(_, raw)| *raw));
            self.guards.push(b'G', 1, args);
        }
    }

    /// Requires that the keys do not exist.
    pub fn guard_absence(&mut self, keys: &[&str]) {
        for some in keys.chunks(MAX_ARGS) {
            let args = self.type_checked_keys(some.iter().copied());
            self.guards.push(b'g', 1, args);
        }
    }

    /// Requires that the fields of a hash have these values.
    pub fn guard_fields(&mut self, key: &str, fields: &[(&Bytes, &Bytes)]) {
        for some in fields.chunks(MAX_ARGS) {
            let fields: Vec<Bytes> = some.iter().map(|(field, _)| (*field).clone()).collect();
            let mut args = vec![some.len().to_string().into()];
            args.extend(fields.iter().cloned());
            push_expected(&mut args, some.iter().map(|(_, raw)| *raw));
            // ARGV counts from 1, and has the program and the number of fields before them.
            let (index, first) = (self.index(key), self.guards.args.len() + 3);
            self.guarded.push(GuardedFields { index, first, names: fields });
            self.guard(b'B', key, args);
        }
    }

    pub fn guard_field(&mut self, key: &str, field: &Bytes, raw: Option<&Bytes>) {
        match raw {
            Some(raw) => self.guard(b'F', key, [field.clone(), raw.clone()]),
            None => self.guard(b'f', key, [field.clone()]),
        }
    }

    /// Requires that the hash has exactly these fields and values.
    pub fn guard_hash(&mut self, key: &str, pairs: &[(Bytes, Bytes)]) {
        let mut args = vec![pairs.len().to_string().into()];
        args.extend(pairs.iter().flat_map(|(field, value)| [field.clone(), value.clone()]));
        self.guard(b'H', key, args);
    }

    pub fn guard_emptiness(&mut self, key: &str, empty: bool) {
        self.guard(if empty { b'E' } else { b'e' }, key, []);
    }

    /// Requires that the list's items up to `last` (-1 means all), joined, are `joined`.
    pub fn guard_list(&mut self, key: &str, last: i64, joined: Bytes) {
        self.guard(b'L', key, [last.to_string().into(), joined]);
    }

    pub fn guard_member(&mut self, key: &str, member: String, is: bool) {
        self.guard(if is { b'M' } else { b'm' }, key, [member.into()]);
    }

    pub fn guard_existence(&mut self, key: &str) {
        self.guard(b'X', key, []);
    }

    /// Adds a command.
    pub fn call(
        &mut self,
        kind: ValueType,
        name: &'static str,
        key: &str,
        args: impl IntoIterator<Item = Bytes>,
    ) {
        self.command(b'C', kind, name, key, args);
    }

    /// Removes fields of a hash. If a guard names the same fields in the same order, they are not sent
    /// twice.
    pub fn delete_fields(&mut self, key: &str, fields: &[Bytes]) {
        let index = self.index(key);
        for some in fields.chunks(MAX_ARGS) {
            let mut guarded = self.guarded.iter();
            if let Some(known) = guarded.find(|it| it.index == index && it.names == some) {
                let range = [known.first.to_string().into(), some.len().to_string().into()];
                self.changes.push(b'A', index, range);
                self.written[index - 1] = true;
            } else {
                self.call(ValueType::Hash, "HDEL", key, some.iter().cloned());
            }
        }
    }

    /// Removes keys of any type.
    pub fn delete_all(&mut self, keys: &[String]) {
        // The keys that guards name have consecutive indexes, and so do the new ones.
        let (known, new): (Vec<&str>, Vec<&str>) =
            keys.iter().map(String::as_str).partition(|key| self.indexes.contains_key(*key));
        for some in known.chunks(MAX_ARGS).chain(new.chunks(MAX_ARGS)) {
            let indexes: Vec<usize> = some.iter().map(|key| self.index(key)).collect();
            self.changes.push(b'Z', 1, key_args(&indexes));
        }
    }

    /// Writes values, replacing those of any type.
    pub fn set_all(&mut self, values: &[(String, Bytes)]) {
        for some in values.chunks(MAX_ARGS) {
            let indexes: Vec<usize> = some.iter().map(|(key, _)| self.index(key)).collect();
            let mut args = key_args(&indexes);
            args.extend(some.iter().map(|(_, value)| value.clone()));
            self.changes.push(b'Y', 1, args);
        }
    }

    /// Returns the arguments that name keys, and marks their types as checked.
    fn type_checked_keys<'k>(&mut self, keys: impl Iterator<Item = &'k str>) -> Vec<Bytes> {
        let indexes: Vec<usize> = keys.map(|key| self.index(key)).collect();
        for index in &indexes {
            self.type_checked[index - 1] = true;
        }
        key_args(&indexes)
    }

    /// As [`Batch::call`], with its result in [`Outcome::Applied`].
    pub fn report(
        &mut self,
        kind: ValueType,
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
        // A missing attr must be noticed before the first change is applied.
        if !self.type_checked[index - 1] && !self.written[index - 1] {
            self.guard(b'N', key, []);
        }
        self.changes.push(b'K', index, [links.to_string().into(), time.freeze()]);
    }

    /// Removes the lock from the session's `locked` set if the session no longer holds it.
    pub fn tidy_lock(&mut self, lock: &str, locked: &str, stem: String) {
        self.lock_command(b'U', lock, locked, stem);
    }

    /// Releases the session's part of the lock.
    pub fn release_lock(&mut self, lock: &str, locked: &str, stem: String) {
        self.lock_command(b'D', lock, locked, stem);
    }

    /// Returns the number of reporting commands so far.
    pub fn reports(&self) -> usize {
        self.reports
    }

    pub fn is_empty(&self) -> bool {
        self.guards.code.is_empty() && self.changes.code.is_empty()
    }

    /// Returns the call that checks and applies the batch.
    pub fn into_cmd(self) -> Cmd {
        let mut cmd = scripts::COMMIT.call(&self.keys);
        cmd.arg([&self.guards.code[..], END_OF_GUARDS, &self.changes.code[..]].concat());
        for arg in self.guards.args.iter().chain(&self.changes.args) {
            cmd.arg(&arg[..]);
        }
        cmd
    }

    fn guard(&mut self, letter: u8, key: &str, args: impl IntoIterator<Item = Bytes>) {
        let index = self.index(key);
        // All other guards read the value, which fails on a wrong type.
        self.type_checked[index - 1] |= !matches!(letter, b'X' | b'N');
        self.guards.push(letter, index, args);
    }

    /// Adds a command and a check of its key's type. A script cannot be rolled back, and a key of the
    /// wrong type is the only reason why a command of a correct client fails, so types are checked
    /// before the first change.
    fn command(
        &mut self,
        letter: u8,
        kind: ValueType,
        name: &'static str,
        key: &str,
        args: impl IntoIterator<Item = Bytes>,
    ) {
        self.check_type(kind, key);
        let index = self.index(key);
        self.written[index - 1] = true;
        let args: Vec<Bytes> = args.into_iter().collect();
        // The commands of every create have instructions of their own, which saves the server work.
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
        self.check_type(ValueType::Hash, lock);
        self.check_type(ValueType::Set, locked);
        let (lock, locked) = (self.index(lock), self.index(locked));
        self.changes.push(letter, lock, [locked.to_string().into(), stem.into()]);
    }

    fn check_type(&mut self, kind: ValueType, key: &str) {
        let index = self.index(key);
        let wanted = match kind {
            ValueType::Hash => "hash",
            ValueType::List => "list",
            ValueType::Set => "set",
            ValueType::SortedSet => "zset",
            ValueType::Any => return,
        };
        if !self.type_checked[index - 1] {
            self.guard(b'T', key, [wanted.into()]);
        }
    }

    /// Returns the index of a key in KEYS, counted from 1 as Lua does.
    fn index(&mut self, key: &str) -> usize {
        if let Some(index) = self.indexes.get(key) {
            return *index;
        }
        self.keys.push(key.to_owned());
        self.type_checked.push(false);
        self.written.push(false);
        self.indexes.insert(key.to_owned(), self.keys.len());
        self.keys.len()
    }
}

impl Program {
    /// Adds an instruction: four bytes, a letter and the index of a key.
    fn push(&mut self, letter: u8, index: usize, args: impl IntoIterator<Item = Bytes>) {
        let [_, high, middle, low] = u32::try_from(index).unwrap_or(u32::MAX).to_be_bytes();
        self.code.extend([letter, high, middle, low]);
        self.args.extend(args);
    }
}

impl Outcome {
    /// Parses the script's reply; none if it is malformed.
    pub fn parse(value: &Value) -> Option<Self> {
        let Value::Array(items) = value else { return None };
        let numbers = || items[1..].iter().map(int).collect::<Option<Vec<i64>>>();
        match int(items.first()?)? {
            0 => Some(Self::Applied(numbers()?)),
            1 => Some(Self::Conflict(*numbers()?.first()?)),
            2 => match &items[1..] {
                [Value::BulkString(text), Value::BulkString(key), done] => Some(Self::Failed {
                    error: ServerError::from_text(&String::from_utf8_lossy(text)),
                    key: String::from_utf8_lossy(key).into_owned(),
                    done: int(done)?,
                }),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns the error of a batch if nothing was applied.
    pub fn find_error(values: &[Value]) -> Option<ServerError> {
        let value = values.first()?;
        match Self::parse(value) {
            Some(Self::Failed { error, done: 0, .. }) => Some(error),
            Some(_) => None,
            None => ServerError::of(value),
        }
    }
}

/// Returns the arguments that name keys: their number and each index, or, if the indexes are
/// consecutive, their negated number and the first index.
fn key_args(indexes: &[usize]) -> Vec<Bytes> {
    let consecutive = indexes.windows(2).all(|pair| pair[0] + 1 == pair[1]);
    let mut args = Vec::with_capacity(2 * indexes.len() + 1);
    match indexes.first() {
        Some(first) if consecutive => args
            .extend([Bytes::from(format!("-{}", indexes.len())), Bytes::from(first.to_string())]),
        _ => {
            args.push(indexes.len().to_string().into());
            args.extend(indexes.iter().map(|index| Bytes::from(index.to_string())));
        }
    }
    args
}

/// Adds the arguments for the values that a guard expects: their length and all of them joined, or,
/// if they differ in length, 0 and each value.
fn push_expected<'b>(args: &mut Vec<Bytes>, values: impl Iterator<Item = &'b Bytes> + Clone) {
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
