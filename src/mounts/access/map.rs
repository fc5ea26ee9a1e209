//! Maps of text to text that are written as JSON or YAML within a value of a Secret.

use saphyr_parser::{Event, Parser};

use super::Pairs;
use crate::error::{Error, Result};
use crate::secret::Secret;

/// Reads the map. Values stay as they are written: `0123` and `yes` are text. Only the name of the
/// key is told of what is wrong, never what is in it.
pub fn read(key: &str, text: &str) -> Result<Pairs> {
    let fail = |what: &str| Error::bad_input(format!("secret key {key}: {what}"));
    let mut pairs = Pairs::new();
    let mut name: Option<String> = None;
    let mut depth = 0;
    for event in Parser::new_from_str(text) {
        let (event, at) = event.map_err(|error| {
            fail(&format!("neither JSON nor YAML, from line {} on", error.marker().line()))
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
                return Err(fail(&format!("not a map of names to texts, at line {line}")));
            }
        }
    }
    if depth != 2 {
        return Err(fail("not a map of names to texts"));
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
    fn json_and_both_kinds_of_yaml_say_the_same() {
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
    fn what_is_not_a_flat_map_is_refused_without_its_content() {
        for text in
            ["sesame", "[sesame]", "{A: [sesame]}", "{A: {B: sesame}}", "{A: \"sesame", "A: *x"]
        {
            let error = read("envs", text).unwrap_err().to_string();
            assert!(error.contains("envs") && !error.contains("sesame"), "{error}");
        }
    }
}
