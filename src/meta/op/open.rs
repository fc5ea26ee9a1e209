//! Open: whether a file may be opened this way. That it is open is known to this client only.

use nix::fcntl::OFlag;

use super::access;
use crate::error::{Error, Result};
use crate::meta::engine::Key;
use crate::meta::record::Attr;
use crate::meta::record::attr::flag;
use crate::meta::{Caller, Ino, MetaTxn, Operation, Plan};

/// The kernel's mark of an open for execution.
const EXEC: OFlag = OFlag::from_bits_retain(0x20);

pub struct Open<'a> {
    pub caller: &'a Caller,
    pub ino: Ino,
    pub flags: OFlag,
    /// The node, if it is known well enough already.
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
        access::permits(tx, self.caller, &node, wanted(self.flags)).await?;
        check_flags(&node, self.flags)?;
        Ok(Plan::answer(node))
    }
}

/// Whether content may change through a handle opened so.
pub fn writes(flags: OFlag) -> bool {
    matches!(flags & OFlag::O_ACCMODE, OFlag::O_WRONLY | OFlag::O_RDWR)
}

/// What flags of the node forbid: an immutable or trashed file is only read, an append-only one is
/// neither truncated nor written elsewhere than at its end.
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
    fn flags_of_the_node_forbid_what_they_must() {
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
            let answer = check_flags(&file(flags, parent), open);
            assert_eq!(answer.is_ok(), allowed, "{flags} {parent} {open:?}");
        }
    }

    #[test]
    fn an_open_wants_the_permission_that_it_uses() {
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
