//! Errors that the server returns: what they mean, and how to recover from them.

use redis::Value;

use crate::error::Error;

/// Characters of an error that are kept. A genuine server sends fewer.
const MAX_TEXT: usize = 1000;

/// How to recover from a server error. All but [`Recovery::GiveUp`] mean that the command was
/// certainly not executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recovery {
    /// Ask the same server again later.
    Wait,
    /// Find the server that is in charge now.
    Reroute,
    /// The server lost its scripts: load them again.
    ReloadScripts,
    GiveUp,
}

/// An error as the server words it: a code and a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct ServerError {
    code: String,
    text: String,
}

impl ServerError {
    /// Returns the error in a reply, if it is one.
    pub fn of(value: &Value) -> Option<Self> {
        let Value::ServerError(error) = value else { return None };
        let text = match error.details() {
            Some(details) => format!("{} {details}", error.code()),
            None => error.code().to_owned(),
        };
        let shown: String = text.chars().take(MAX_TEXT).collect();
        Some(Self::from_text(&shown))
    }

    /// Parses the text of an error. Servers before 7 wrap the error of a script's command:
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

    /// Returns whether the server refused a write because its memory is full.
    pub fn is_out_of_memory(&self) -> bool {
        self.code == "OOM"
    }

    pub(super) fn recovery(&self) -> Recovery {
        match self.code.as_str() {
            // ASK and TRYAGAIN: the volume's slot is migrating, with some keys on either node. Commands on
            // several keys have to wait until all keys have arrived.
            "LOADING" | "CLUSTERDOWN" | "TRYAGAIN" | "ASK" | "BUSY" => Recovery::Wait,
            "MOVED" | "READONLY" | "MASTERDOWN" => Recovery::Reroute,
            "NOSCRIPT" => Recovery::ReloadScripts,
            "ERR" if self.text.contains("max number of clients reached") => Recovery::Reroute,
            // Errors of managed services while they migrate a database.
            "ERR"
                if ["DISABLE", "NOWRITE", "NOREAD"]
                    .iter()
                    .any(|word| self.text.split(' ').nth(1) == Some(word)) =>
            {
                Recovery::Wait
            }
            _ => Recovery::GiveUp,
        }
    }

    /// Returns the error for the caller. `key` is the key that the command was about, or empty.
    pub fn into_error(self, place: &str, key: &str) -> Error {
        match self.code.as_str() {
            "OOM" => Error::NoSpace,
            // Returned by `commit.lua` for a directory that has been removed.
            "NOATTR" => Error::NotFound,
            "WRONGTYPE" if !key.is_empty() => {
                Error::damaged(key, "the key holds another type of value")
            }
            "NOAUTH" => {
                engine_error(place, format!("the server requires a password ({})", self.text))
            }
            "WRONGPASS" => {
                engine_error(place, format!("wrong user name or password ({})", self.text))
            }
            _ => engine_error(place, self.text),
        }
    }

    /// As [`ServerError::into_error`], for an error during the handshake. Passing errors count as a
    /// server that cannot be reached.
    pub(super) fn into_connect_error(self, place: &str) -> Error {
        match self.recovery() {
            Recovery::GiveUp => self.into_error(place, ""),
            _ => unreachable_error(place, self.text),
        }
    }
}

pub(in super::super) fn engine_error(place: &str, cause: impl Into<String>) -> Error {
    Error::Engine { place: place.to_owned(), cause: cause.into() }
}

pub(in super::super) fn unreachable_error(place: &str, cause: impl Into<String>) -> Error {
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
    fn the_code_is_found_in_the_wrapped_errors_of_old_servers() {
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
            assert_eq!(ServerError::from_text(text).code(), code, "{text}");
        }
    }

    #[test]
    fn passing_errors_are_distinguished_from_permanent_ones() {
        let recovery = |text: &str| ServerError::from_text(text).recovery();
        assert_eq!(recovery("LOADING Redis is loading the dataset in memory"), Recovery::Wait);
        assert_eq!(recovery("MOVED 3999 127.0.0.1:6381"), Recovery::Reroute);
        assert_eq!(
            recovery("NOSCRIPT No matching script. Please use EVAL."),
            Recovery::ReloadScripts
        );
        assert_eq!(recovery("ERR max number of clients reached"), Recovery::Reroute);
        assert_eq!(recovery("ERR NOWRITE in progress"), Recovery::Wait);
        assert_eq!(recovery("ERR syntax error"), Recovery::GiveUp);
        assert_eq!(recovery("MISCONF Errors writing to the AOF file"), Recovery::GiveUp);
    }

    #[test]
    fn out_of_memory_is_no_space() {
        let error = ServerError::from_text("OOM command not allowed").into_error("redis://h", "i1");
        assert!(matches!(error, Error::NoSpace));
    }
}
