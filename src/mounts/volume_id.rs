//! The CSI volume id.

use std::fmt;
use std::fmt::Write;

use ring::digest;

use crate::error::{Error, Result};

/// The limit of the CSI specification.
const MAX_LENGTH: usize = 128;
/// Digits of a digest: enough to avoid collisions among the volumes of a node.
const DIGEST_DIGITS: usize = 16;

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VolumeId(String);

impl VolumeId {
    pub fn new(text: &str) -> Result<Self> {
        if text.is_empty() {
            return Err(Error::bad_input("the volume id is empty"));
        }
        if text.len() > MAX_LENGTH || text.contains(char::is_control) {
            return Err(Error::bad_input(format!(
                "volume id {text:?} is longer than {MAX_LENGTH} bytes or has control characters"
            )));
        }
        Ok(Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns a unique file name for the volume that resembles its id.
    pub fn file_name(&self) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
        let mut name: String = self.0.chars().take(64).map(plain).collect();
        name.push('-');
        let digest = digest::digest(&digest::SHA256, self.0.as_bytes());
        for byte in &digest.as_ref()[..DIGEST_DIGITS / 2] {
            // Writing to a string does not fail.
            let _ = write!(name, "{byte:02x}");
        }
        name
    }
}

impl fmt::Display for VolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_are_plain_and_unique() {
        let name = |id: &str| VolumeId::new(id).unwrap().file_name();
        assert!(name("pvc-1/../x").starts_with("pvc-1____x-"));
        assert_ne!(name("a/b"), name("a_b"));
        assert_eq!(name("pvc-1"), name("pvc-1"));
    }

    #[test]
    fn an_id_is_text_of_limited_length() {
        for id in ["", "a\nb", &"x".repeat(129)] {
            assert!(VolumeId::new(id).is_err(), "{id:?}");
        }
    }
}
