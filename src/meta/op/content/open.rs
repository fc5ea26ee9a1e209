//! Open: checks whether a file may be opened. The store does not record which files are open.

use nix::fcntl::OFlag;

use crate::error::{Error, Result};
use crate::meta::engine::Key;
use crate::meta::op::attrs::access;
use crate::meta::record::Attr;
use crate::meta::record::attr::flag;
use crate::meta::{Caller, Ino, MetaTxn, Operation, Plan};

/// The flag that the kernel sets when it opens a file to execute it.
const EXEC: OFlag = OFlag::from_bits_retain(0x20);

pub struct Open<'a> {
    pub caller: &'a Caller,
    pub ino: Ino,
    pub flags: OFlag,
    /// The cached attr, if it is recent enough.
    pub known: Option<Attr>,
}

impl Operation for Open<'_> {
    type Output = Attr;
    const NAME: &'static str = "open";

    async fn plan(&self, tx: &mut MetaTxn<'_>) -> Result<Plan<Attr>> {
        let node = if let Some(node) = &self.known {
            node.clone()
        } else {
            tx.prefetch(&[Key::Attr(self.ino)]).await?;
            tx.node(self.ino).await?
        };
        access::check(tx, self.caller, &node, wanted(self.flags)).await?;
        check_flags(&node, self.flags)?;
        Ok(Plan::unchanged(node))
    }
}

/// Whether a handle with these flags can write.
pub fn writes(flags: OFlag) -> bool {
    matches!(flags & OFlag::O_ACCMODE, OFlag::O_WRONLY | OFlag::O_RDWR)
}

/// Checks the flags of the node: an immutable or trashed file can only be read, an append-only one
/// can neither be truncated nor written except at its end.
fn check_flags(node: &Attr, flags: OFlag) -> Result<()> {
    let frozen = node.has_flag(flag::IMMUTABLE) || node.parent.is_sub_trash();
    let only_append = node.has_flag(flag::APPEND);
    let appends = flags.contains(OFlag::O_APPEND);
    let refused = (frozen && writes(flags))
        || (only_append && writes(flags) && !appends)
        || (only_append && flags.contains(OFlag::O_TRUNC));
    if refused { Err(Error::NotPermitted) } else { Ok(()) }
}

fn wanted(flags: OFlag) -> u16 {
    match flags & OFlag::O_ACCMODE {
        OFlag::O_WRONLY => access::WRITE,
        OFlag::O_RDWR => access::READ | access::WRITE,
        _ if flags.contains(EXEC) => access::EXEC,
        _ => access::READ,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::Timestamp;
    use crate::meta::record::FileKind;

    fn file(flags: u8, parent: Ino) -> Attr {
        let node = Attr::new(FileKind::File, 0o644, 0, 0, parent, Timestamp::default());
        Attr { flags, ..node }
    }

    #[test]
    fn node_flags_restrict_how_a_file_is_opened() {
        let (read, write, both) = (OFlag::O_RDONLY, OFlag::O_WRONLY, OFlag::O_RDWR);
        let append = OFlag::O_APPEND;
        let trashed = Ino(Ino::TRASH.0 + 1);
        for (flags, parent, open, allowed) in [
            (0, Ino::ROOT, both | OFlag::O_TRUNC, true),
            (flag::IMMUTABLE, Ino::ROOT, read, true),
            (flag::IMMUTABLE, Ino::ROOT, write, false),
            (flag::IMMUTABLE, Ino::ROOT, both | append, false),
            (flag::APPEND, Ino::ROOT, read, true),
            (flag::APPEND, Ino::ROOT, write, false),
            (flag::APPEND, Ino::ROOT, write | append, true),
            (flag::APPEND, Ino::ROOT, both | append | OFlag::O_TRUNC, false),
            (flag::APPEND, Ino::ROOT, read | OFlag::O_TRUNC, false),
            (0, trashed, read, true),
            (0, trashed, write, false),
        ] {
            let checked = check_flags(&file(flags, parent), open);
            assert_eq!(checked.is_ok(), allowed, "{flags} {parent} {open:?}");
        }
    }

    #[test]
    fn an_open_checks_the_permissions_it_uses() {
        for (flags, permission) in [
            (OFlag::O_RDONLY, access::READ),
            (OFlag::O_RDONLY | EXEC, access::EXEC),
            (OFlag::O_WRONLY | OFlag::O_APPEND, access::WRITE),
            (OFlag::O_RDWR, access::READ | access::WRITE),
        ] {
            assert_eq!(wanted(flags), permission, "{flags:?}");
        }
    }
}
