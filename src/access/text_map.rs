//! Maps of strings in JSON or YAML, within a value of a Secret.

use saphyr_parser::{Event, Parser};

use super::Pairs;
use crate::error::{Error, Result};
use crate::secret::Secret;

/// Parses a map. Values are text as written, also `0123` and `yes`. Errors name the key and the
/// line, never the content.
pub fn read(key: &str, text: &str) -> Result<Pairs> {
    let fail = |what: &str| Error::bad_input(format!("secret key {key}: {what}"));
    let mut pairs = Pairs::new();
    let mut name: Option<String> = None;
    let mut depth = 0;
    for event in Parser::new_from_str(text) {
        let (event, at) = event.map_err(|error| {
            fail(&format!("invalid JSON or YAML at line {}", error.marker().line()))
        })?;
        match (event, depth) {
            (Event::MappingStart(..), 0) => depth = 1,
            (Event::MappingEnd, 1) => depth = 2,
            (Event::Scalar(text, ..), 1) => match name.take() {
                None => name = Some(text.into_owned()),
                Some(known) => {
                    pairs.insert(known, Secret::new(text));
                }
            },
            (
                Event::StreamStart
                | Event::StreamEnd
                | Event::DocumentStart(_)
                | Event::DocumentEnd
                | Event::Nothing,
                _,
            ) => {}
            _ => {
                let line = at.start.line();
                return Err(fail(&format!("not a map of strings, at line {line}")));
            }
        }
    }
    if depth != 2 {
        return Err(fail("not a map of strings"));
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Vec<(String, String)> {
        let read = read("envs", text).unwrap();
        read.into_iter().map(|(name, value)| (name, value.expose().to_owned())).collect()
    }

    #[test]
    fn json_and_both_styles_of_yaml_are_equivalent() {
        let want = [("A".to_owned(), "0123".to_owned()), ("B".to_owned(), "x: y".to_owned())];
        for text in [
            r#"{"A": "0123", "B": "x: y"}"#,
            "{A: 0123, B: 'x: y'}",
            "A: 0123\nB: \"x: y\"\n",
            "---\nB: 'x: y'\nA: 0123",
        ] {
            assert_eq!(shown(text), want, "{text}");
        }
        assert_eq!(shown("{}"), []);
    }

    #[test]
    fn anything_but_a_flat_map_is_refused_without_showing_it() {
        for text in
            ["sesame", "[sesame]", "{A: [sesame]}", "{A: {B: sesame}}", "{A: \"sesame", "A: *x"]
        {
            let error = read("envs", text).unwrap_err().to_string();
            assert!(error.contains("envs") && !error.contains("sesame"), "{error}");
        }
    }
}
