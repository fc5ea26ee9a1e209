//! The text of a JSON dump, laid out as the Go client does it.

use serde::Serialize;
use serde_json::{Map, Value};

use super::model::{
    DumpedAcl, DumpedAttr, DumpedChunk, DumpedCounters, DumpedDeletedFile, DumpedQuotas,
    DumpedSlice, DumpedSustained, DumpedXattr,
};
use crate::error::{Error, Result};
use crate::meta::dump::escape::{escape, escape_into};
use crate::meta::dump::node::Node;
use crate::meta::record::go_json;

const INDENT: &str = "  ";

/// Everything before the trees.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Header {
    pub setting: Map<String, Value>,
    pub counters: DumpedCounters,
    pub sustained: Vec<DumpedSustained>,
    pub del_files: Vec<DumpedDeletedFile>,
    #[serde(skip_serializing_if = "DumpedQuotas::is_empty")]
    pub quotas: DumpedQuotas,
    #[serde(skip_serializing_if = "DumpedQuotas::is_empty")]
    pub user_quotas: DumpedQuotas,
    #[serde(skip_serializing_if = "DumpedQuotas::is_empty")]
    pub group_quotas: DumpedQuotas,
}

/// Text that is collected until the caller takes it.
#[derive(Debug, Default)]
pub struct Writer {
    out: String,
}

impl Writer {
    pub fn len(&self) -> usize {
        self.out.len()
    }

    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out).into_bytes()
    }

    pub fn header(&mut self, header: &Header) -> Result<()> {
        let json = go_json::indented(header, INDENT.as_bytes()).map_err(encode_error)?;
        let json = String::from_utf8(json).map_err(encode_error)?;
        // The trees follow in the same object.
        self.out.push_str(json.strip_suffix("\n}").unwrap_or(&json));
        self.out.push(',');
        Ok(())
    }

    /// Writes what separates two entries or trees.
    pub fn comma(&mut self) {
        self.out.push(',');
    }

    /// Writes a directory up to its first entry. `name` is escaped.
    pub fn begin_dir(&mut self, name: &str, node: &Node, depth: usize) -> Result<()> {
        self.begin(name, node, depth)?;
        self.acls(node, depth + 1)?;
        self.out.push(',');
        self.line(depth + 1);
        self.out.push_str("\"entries\": {");
        Ok(())
    }

    pub fn end_dir(&mut self, depth: usize) {
        self.line(depth + 1);
        self.out.push('}');
        self.line(depth);
        self.out.push('}');
    }

    /// Writes a node that is no directory.
    pub fn node(&mut self, name: &str, node: &Node, depth: usize) -> Result<()> {
        self.begin(name, node, depth)?;
        self.acls(node, depth + 1)?;
        let chunks: Vec<DumpedChunk> = node
            .chunks
            .iter()
            .map(|(index, slices)| DumpedChunk {
                index: *index,
                slices: slices.iter().map(DumpedSlice::from).collect(),
            })
            .collect();
        match chunks.as_slice() {
            [] => {}
            [_] => self.field("chunks", &chunks, depth + 1)?,
            [first, rest @ ..] => {
                self.out.push(',');
                self.line(depth + 1);
                self.out.push_str("\"chunks\": [");
                self.line(depth + 2);
                self.value(first)?;
                for chunk in rest {
                    self.out.push(',');
                    self.line(depth + 2);
                    self.value(chunk)?;
                }
                self.line(depth + 1);
                self.out.push(']');
            }
        }
        self.line(depth);
        self.out.push('}');
        Ok(())
    }

    pub fn end(&mut self) {
        self.out.push_str("\n}\n");
    }

    fn begin(&mut self, name: &str, node: &Node, depth: usize) -> Result<()> {
        self.line(depth);
        self.out.push('"');
        self.out.push_str(name);
        self.out.push_str("\": {");
        self.line(depth + 1);
        self.out.push_str("\"attr\": ");
        match &node.attr {
            Some(attr) => self.value(&DumpedAttr::new(node.ino, attr))?,
            None => self.value(&DumpedAttr::no_trash())?,
        }
        if let Some(target) = node.symlink.as_ref().filter(|target| !target.is_empty()) {
            self.out.push(',');
            self.line(depth + 1);
            self.out.push_str("\"symlink\": \"");
            escape_into(&mut self.out, target);
            self.out.push('"');
        }
        if !node.xattrs.is_empty() {
            let xattrs: Vec<DumpedXattr> = node
                .xattrs
                .iter()
                .map(|(name, value)| DumpedXattr { name: name.to_string(), value: escape(value) })
                .collect();
            self.field("xattrs", &xattrs, depth + 1)?;
        }
        Ok(())
    }

    fn acls(&mut self, node: &Node, depth: usize) -> Result<()> {
        for (field, rule) in
            [("posix_acl_access", &node.access_acl), ("posix_acl_default", &node.default_acl)]
        {
            if let Some(rule) = rule {
                self.field(field, &DumpedAcl::from(rule), depth)?;
            }
        }
        Ok(())
    }

    fn field(&mut self, name: &str, value: &impl Serialize, depth: usize) -> Result<()> {
        self.out.push(',');
        self.line(depth);
        self.out.push('"');
        self.out.push_str(name);
        self.out.push_str("\": ");
        self.value(value)
    }

    fn value(&mut self, value: &impl Serialize) -> Result<()> {
        let json = go_json::compact(value).map_err(encode_error)?;
        self.out.push_str(std::str::from_utf8(&json).map_err(encode_error)?);
        Ok(())
    }

    fn line(&mut self, depth: usize) {
        self.out.push('\n');
        for _ in 0..depth {
            self.out.push_str(INDENT);
        }
    }
}

fn encode_error(cause: impl std::fmt::Display) -> Error {
    Error::internal("writing a dump", cause)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::meta::record::{Attr, FileKind, Slice};
    use crate::meta::{Ino, Name, SliceId, Timestamp};

    fn file(chunks: &[u32]) -> Node {
        let slice = Slice { pos: 0, id: SliceId(7), size: 10, off: 0, len: 10 };
        let attr = Attr::new(FileKind::File, 0o644, 1, 2, Ino::ROOT, Timestamp::from_secs(9));
        Node {
            ino: Ino(5),
            attr: Some(Attr { length: 10, ..attr }),
            symlink: None,
            xattrs: vec![(Name::new("user.k").unwrap(), Bytes::from_static(b"<v> 1"))],
            access_acl: None,
            default_acl: None,
            chunks: chunks.iter().map(|index| (*index, vec![slice])).collect(),
        }
    }

    // The expected texts are the output of the Go client.
    #[test]
    fn a_file_with_one_chunk_takes_one_line_for_it() {
        let mut writer = Writer::default();
        writer.node("a%20b", &file(&[0]), 2).unwrap();
        assert_eq!(
            String::from_utf8(writer.take()).unwrap(),
            r#"
    "a%20b": {
      "attr": {"inode":5,"type":"regular","mode":420,"uid":1,"gid":2,"atime":9,"mtime":9,"ctime":9,"nlink":1,"length":10},
      "xattrs": [{"name":"user.k","value":"\u003cv\u003e%201"}],
      "chunks": [{"index":0,"slices":[{"id":7,"size":10,"len":10}]}]
    }"#
        );
    }

    #[test]
    fn every_further_chunk_takes_a_line_of_its_own() {
        let mut writer = Writer::default();
        let node = Node { xattrs: Vec::new(), ..file(&[0, 3]) };
        writer.node("a", &node, 1).unwrap();
        let text = String::from_utf8(writer.take()).unwrap();
        assert!(
            text.ends_with(
                "    \"chunks\": [\n      {\"index\":0,\"slices\":[{\"id\":7,\"size\":10,\"len\":10}]},\n      \
                 {\"index\":3,\"slices\":[{\"id\":7,\"size\":10,\"len\":10}]}\n    ]\n  }"
            ),
            "{text}"
        );
    }
}
