//! The ioctls of files: flags, as chattr(1) and lsattr(1) use them.

use bytes::{BufMut, Bytes, BytesMut};

use super::ask::Ask;
use crate::error::{Error, Result};
use crate::fuse::answer::IoctlDone;
use crate::meta::Ino;

/// `FS_IOC_GETFLAGS` and `FS_IOC_SETFLAGS`, of programs of 64 and of 32 bits.
const GET_FLAGS: [u32; 2] = [0x8008_6601, 0x8004_6601];
const SET_FLAGS: [u32; 2] = [0x4008_6602, 0x4004_6602];
/// `FS_IOC_FSGETXATTR`: the kernel asks it before it sets flags.
const GET_FSXATTR: u32 = 0x801C_581F;
const FSXATTR: usize = 28;

pub async fn run(ask: &Ask, ino: Ino, command: u32, input: &[u8], room: u32) -> Result<IoctlDone> {
    let output = match command {
        command if GET_FLAGS.contains(&command) => {
            let flags = ask.vfs.flags(ino).await?;
            let mut out = BytesMut::from(&flags.to_ne_bytes()[..]);
            // The type says long; what is used of it is an int.
            out.resize(usize::try_from(room).unwrap_or(0).clamp(4, 8), 0);
            out.freeze()
        }
        command if SET_FLAGS.contains(&command) => {
            let flags = input.first_chunk().ok_or(Error::Invalid)?;
            ask.vfs.set_flags(&ask.caller, ino, u32::from_ne_bytes(*flags)).await?;
            Bytes::new()
        }
        GET_FSXATTR => {
            let flags = ask.vfs.flags(ino).await?;
            let mut out = BytesMut::with_capacity(FSXATTR);
            out.put_u32_ne(fsx_flags(flags));
            out.resize(FSXATTR, 0);
            out.freeze()
        }
        _ => return Err(Error::NotTty),
    };
    Ok(IoctlDone { result: 0, output })
}

/// The two flags that have a name there as well.
fn fsx_flags(flags: u32) -> u32 {
    const IMMUTABLE: (u32, u32) = (0x10, 0x08);
    const APPEND: (u32, u32) = (0x20, 0x10);
    [IMMUTABLE, APPEND].iter().filter(|(flag, _)| flags & flag != 0).map(|(_, shown)| shown).sum()
}
