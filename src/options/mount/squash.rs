//! The values of `--root-squash` and `--all-squash`: `UID[:GID]`.

use anyhow::Context;
use nix::unistd::{Group, User};

use super::Warnings;
use crate::vfs::Squash;

/// The id used if the system has no such account.
const NOBODY: u32 = 65534;

/// The given ids; `nobody` and `nogroup` replace missing ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SquashIds {
    uid: Option<u32>,
    gid: Option<u32>,
}

impl SquashIds {
    pub fn squash(&self) -> Squash {
        // Squashing to root would defeat the purpose.
        Squash {
            uid: self.uid.filter(|uid| *uid > 0).unwrap_or_else(nobody),
            gid: self.gid.filter(|gid| *gid > 0).unwrap_or_else(nogroup),
        }
    }

    pub fn check(&self, warnings: &mut Warnings) {
        if self.uid == Some(0) || self.gid == Some(0) {
            let Squash { uid, gid } = self.squash();
            warnings.add(format!("users cannot be squashed to root; using {uid}:{gid}"));
        }
    }
}

pub fn parse(text: &str) -> anyhow::Result<SquashIds> {
    let (uid, gid) = text.trim().split_once(':').unwrap_or((text.trim(), ""));
    let id = |what: &str, text: &str| match text {
        "" => Ok(None),
        text => text.parse().map(Some).with_context(|| format!("{what} {text:?} is not a number")),
    };
    Ok(SquashIds { uid: id("user", uid)?, gid: id("group", gid)? })
}

fn nobody() -> u32 {
    User::from_name("nobody").ok().flatten().map_or(NOBODY, |user| user.uid.as_raw())
}

fn nogroup() -> u32 {
    Group::from_name("nogroup").ok().flatten().map_or(NOBODY, |group| group.gid.as_raw())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_is_optional() {
        let squash = |text| parse(text).unwrap().squash();
        assert_eq!(squash("1000:2000"), Squash { uid: 1000, gid: 2000 });
        assert_eq!(squash("1000"), Squash { uid: 1000, gid: nogroup() });
        assert_eq!(squash(":7"), Squash { uid: nobody(), gid: 7 });
        assert_eq!(squash(""), Squash { uid: nobody(), gid: nogroup() });
    }

    #[test]
    fn squashing_to_root_is_replaced_by_nobody() {
        let ids = parse("0:0").unwrap();
        assert_eq!(ids.squash(), Squash { uid: nobody(), gid: nogroup() });
        let mut warnings = Warnings::default();
        ids.check(&mut warnings);
        assert!(warnings.has("root"));
    }

    #[test]
    fn account_names_are_refused() {
        for text in ["root", "1:wheel", "-1", "1:2:3"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
