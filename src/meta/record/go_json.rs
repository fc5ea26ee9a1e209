//! JSON as Go's encoder writes it: `<`, `>`, `&` and the two line separators are escaped, and
//! indenting puts every field on its own line even with an empty indent.

use std::io;

use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter, Serializer};

/// Encodes on one line, without spaces.
pub fn compact(value: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    write(value, CompactFormatter)
}

/// Encodes one field per line, each level indented by `indent`.
pub fn indented(value: &impl Serialize, indent: &[u8]) -> serde_json::Result<Vec<u8>> {
    write(value, PrettyFormatter::with_indent(indent))
}

fn write(value: &impl Serialize, layout: impl Formatter) -> serde_json::Result<Vec<u8>> {
    let mut out = Vec::new();
    value.serialize(&mut Serializer::with_formatter(&mut out, Escaping(layout)))?;
    Ok(out)
}

/// Any layout, with the additional escapes of Go in strings.
struct Escaping<F>(F);

impl<F: Formatter> Formatter for Escaping<F> {
    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        out: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut done = 0;
        for (at, special) in fragment.match_indices(['<', '>', '&', '\u{2028}', '\u{2029}']) {
            out.write_all(&fragment.as_bytes()[done..at])?;
            for character in special.chars() {
                write!(out, "\\u{:04x}", u32::from(character))?;
            }
            done = at + special.len();
        }
        out.write_all(&fragment.as_bytes()[done..])
    }

    fn begin_array<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_array(out)
    }

    fn end_array<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_array(out)
    }

    fn begin_array_value<W: ?Sized + io::Write>(
        &mut self,
        out: &mut W,
        first: bool,
    ) -> io::Result<()> {
        self.0.begin_array_value(out, first)
    }

    fn end_array_value<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_array_value(out)
    }

    fn begin_object<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_object(out)
    }

    fn end_object<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_object(out)
    }

    fn begin_object_key<W: ?Sized + io::Write>(
        &mut self,
        out: &mut W,
        first: bool,
    ) -> io::Result<()> {
        self.0.begin_object_key(out, first)
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_object_value(out)
    }

    fn end_object_value<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_object_value(out)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    // The expected texts are the output of json.Marshal and json.MarshalIndent(v, "", "") of Go
    // 1.26.
    #[test]
    fn strings_are_escaped_as_go_escapes_them() {
        let text = "k\t\"q\" \\ <a> & b\r\n\u{1}\u{1f}\u{7f}\u{8}\u{c}\u{2028}\u{2029} \u{fffd} é/";
        let json = String::from_utf8(compact(&text).unwrap()).unwrap();
        assert_eq!(
            json,
            "\"k\\t\\\"q\\\" \\\\ \\u003ca\\u003e \\u0026 b\\r\\n\\u0001\\u001f\u{7f}\\b\\f\
             \\u2028\\u2029 \u{fffd} é/\""
        );
    }

    #[test]
    fn nested_values_take_one_line_per_field() {
        let value = json!({"a": {"b": [1, "<"], "c": {}, "d": []}, "e": null, "&": true});
        let json = String::from_utf8(indented(&value, b"").unwrap()).unwrap();
        assert_eq!(
            json,
            "{\n\"a\": {\n\"b\": [\n1,\n\"\\u003c\"\n],\n\"c\": {},\n\"d\": []\n},\n\
             \"e\": null,\n\"\\u0026\": true\n}"
        );
    }

    proptest! {
        #[test]
        fn every_encoded_text_decodes_to_the_same(text: String) {
            let value: Value = serde_json::from_slice(&compact(&text).unwrap()).unwrap();
            prop_assert_eq!(value, Value::String(text));
        }
    }
}
