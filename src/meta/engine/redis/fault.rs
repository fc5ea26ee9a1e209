//! Faults: what the server's errors mean, and what to do about them.

use redis::Value;

use crate::error::Error;

/// Letters of an error that are told; a server that means it says less.
const LONGEST: usize = 1000;

/// What a server error asks of the caller. All but [`Advice::GiveUp`] say that the command was
/// surely not carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Advice {
    /// The same server will answer in a while.
    Wait,
    /// Another server is in charge now: find it.
    Move,
    /// The server lost its scripts: load them.
    Reload,
    GiveUp,
}

/// An error as the server words it: a code and a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    code: String,
    text: String,
}

impl Fault {
    /// The fault in a reply, if it is one.
    pub fn of(value: &Value) -> Option<Self> {
        let Value::ServerError(error) = value else { return None };
        let text = match error.details() {
            Some(details) => format!("{} {details}", error.code()),
            None => error.code().to_owned(),
        };
        let shown: String = text.chars().take(LONGEST).collect();
        Some(Self::from_text(&shown))
    }

    /// Servers before 7 wrap what a script's command answered:
    /// `ERR Error running script (...): @user_script:1: -OOM command not allowed`.
    pub fn from_text(text: &str) -> Self {
        let inner = match text.find("@user_script") {
            Some(at) if !is_code(first_word(text)) || first_word(text) == "ERR" => text[at..]
                .split(": ")
                .find(|part| is_code(first_word(part.trim_start_matches('-')))),
            _ => None,
        };
        let text = inner.unwrap_or(text).trim_start_matches('-');
        Self { code: first_word(text).to_owned(), text: text.to_owned() }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn code(&self) -> &str {
        &self.code
    }

    /// Whether the server has no memory for what was to be written.
    pub fn is_want_of_memory(&self) -> bool {
        self.code == "OOM"
    }

    pub fn advice(&self) -> Advice {
        match self.code.as_str() {
            // ASK and TRYAGAIN: our slot is on its way to another node, with some keys here and some
            // there. What touches several keys has to wait until all have arrived.
            "LOADING" | "CLUSTERDOWN" | "TRYAGAIN" | "ASK" | "BUSY" => Advice::Wait,
            "MOVED" | "READONLY" | "MASTERDOWN" => Advice::Move,
            "NOSCRIPT" => Advice::Reload,
            "ERR" if self.text.contains("max number of clients reached") => Advice::Move,
            // What a managed service answers while it moves a database.
            "ERR"
                if ["DISABLE", "NOWRITE", "NOREAD"]
                    .iter()
                    .any(|word| self.text.split(' ').nth(1) == Some(word)) =>
            {
                Advice::Wait
            }
            _ => Advice::GiveUp,
        }
    }

    /// What the caller is told; `key` is what the command was about, if anything.
    pub fn into_error(self, place: &str, key: &str) -> Error {
        match self.code.as_str() {
            "OOM" => Error::NoSpace,
            // Our own script's word for a directory that is gone.
            "NOATTR" => Error::NotFound,
            "WRONGTYPE" if !key.is_empty() => {
                Error::damaged(key, "the key holds another type of value")
            }
            "NOAUTH" => engine(place, format!("the server asks for a password ({})", self.text)),
            "WRONGPASS" => engine(place, format!("wrong user name or password ({})", self.text)),
            _ => engine(place, self.text),
        }
    }

    /// What the caller is told when a server refuses to be greeted. Passing faults read as a server
    /// that cannot be reached.
    pub fn into_refusal(self, place: &str) -> Error {
        match self.advice() {
            Advice::GiveUp => self.into_error(place, ""),
            _ => unreachable(place, self.text),
        }
    }
}

pub(super) fn engine(place: &str, cause: impl Into<String>) -> Error {
    Error::Engine { place: place.to_owned(), cause: cause.into() }
}

pub(super) fn unreachable(place: &str, cause: impl Into<String>) -> Error {
    Error::Unreachable { place: place.to_owned(), cause: cause.into() }
}

fn first_word(text: &str) -> &str {
    text.split([' ', '\r', '\n']).next().unwrap_or_default()
}

fn is_code(word: &str) -> bool {
    word.len() > 2 && word.bytes().all(|byte| byte.is_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_found_inside_what_old_servers_wrap_around_it() {
        let cases = [
            ("OOM command not allowed when used memory > 'maxmemory'.", "OOM"),
            (
                "@user_script: 12: -READONLY You can't write against a read only replica.",
                "READONLY",
            ),
            (
                "ERR Error running script (call to f_1): @user_script:1: \
                 -OOM command not allowed when used memory > 'maxmemory'.",
                "OOM",
            ),
            ("WRONGTYPE list instead of hash", "WRONGTYPE"),
            ("ERR value is not an integer or out of range", "ERR"),
        ];
        for (text, code) in cases {
            assert_eq!(Fault::from_text(text).code(), code, "{text}");
        }
    }

    #[test]
    fn passing_faults_are_told_from_lasting_ones() {
        let advice = |text: &str| Fault::from_text(text).advice();
        assert_eq!(advice("LOADING Redis is loading the dataset in memory"), Advice::Wait);
        assert_eq!(advice("MOVED 3999 127.0.0.1:6381"), Advice::Move);
        assert_eq!(advice("NOSCRIPT No matching script. Please use EVAL."), Advice::Reload);
        assert_eq!(advice("ERR max number of clients reached"), Advice::Move);
        assert_eq!(advice("ERR NOWRITE in progress"), Advice::Wait);
        assert_eq!(advice("ERR syntax error"), Advice::GiveUp);
        assert_eq!(advice("MISCONF Errors writing to the AOF file"), Advice::GiveUp);
    }

    #[test]
    fn running_out_of_memory_is_no_space() {
        let error = Fault::from_text("OOM command not allowed").into_error("redis://h", "i1");
        assert!(matches!(error, Error::NoSpace));
    }
}
