//! As whom callers act: `UID[:GID]`.

use anyhow::Context;
use nix::unistd::{Group, User};

use super::warnings::Warnings;
use crate::vfs::Squash;

/// Where there is no such account.
const NOBODY: u32 = 65534;

/// What was said; nobody stands in for what was not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Said {
    uid: Option<u32>,
    gid: Option<u32>,
}

impl Said {
    pub fn squash(&self) -> Squash {
        // Nobody is squashed to root: that would be the contrary.
        Squash {
            uid: self.uid.filter(|uid| *uid > 0).unwrap_or_else(nobody),
            gid: self.gid.filter(|gid| *gid > 0).unwrap_or_else(nogroup),
        }
    }

    pub fn check(&self, warnings: &mut Warnings) {
        if self.uid == Some(0) || self.gid == Some(0) {
            let Squash { uid, gid } = self.squash();
            warnings.say(format!("nobody is squashed to root; {uid}:{gid} it is"));
        }
    }
}

pub fn parse(text: &str) -> anyhow::Result<Said> {
    let (uid, gid) = text.trim().split_once(':').unwrap_or((text.trim(), ""));
    let id = |what: &str, text: &str| match text {
        "" => Ok(None),
        text => text.parse().map(Some).with_context(|| format!("{what} {text:?} is no number")),
    };
    Ok(Said { uid: id("user", uid)?, gid: id("group", gid)? })
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
    fn a_user_may_come_with_a_group() {
        let squash = |text| parse(text).unwrap().squash();
        assert_eq!(squash("1000:2000"), Squash { uid: 1000, gid: 2000 });
        assert_eq!(squash("1000"), Squash { uid: 1000, gid: nogroup() });
        assert_eq!(squash(":7"), Squash { uid: nobody(), gid: 7 });
        assert_eq!(squash(""), Squash { uid: nobody(), gid: nogroup() });
    }

    #[test]
    fn nobody_becomes_root() {
        let said = parse("0:0").unwrap();
        assert_eq!(said.squash(), Squash { uid: nobody(), gid: nogroup() });
        let mut warnings = Warnings::default();
        said.check(&mut warnings);
        assert!(warnings.has("root"));
    }

    #[test]
    fn names_are_no_ids() {
        for text in ["root", "1:wheel", "-1", "1:2:3"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
