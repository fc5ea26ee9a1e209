//! The ioctls on files: flags, as chattr(1) and lsattr(1) use them.

use bytes::{BufMut, Bytes, BytesMut};

use super::call::Call;
use crate::error::{Error, Result};
use crate::fuse::protocol::encode::IoctlReply;
use crate::meta::Ino;

/// `FS_IOC_GETFLAGS` and `FS_IOC_SETFLAGS`, of 64-bit and 32-bit programs.
const GET_FLAGS: [u32; 2] = [0x8008_6601, 0x8004_6601];
const SET_FLAGS: [u32; 2] = [0x4008_6602, 0x4004_6602];
/// `FS_IOC_FSGETXATTR`: the kernel reads it before it sets flags.
const GET_FSXATTR: u32 = 0x801C_581F;
const FSXATTR: usize = 28;

pub async fn run(
    call: &Call,
    ino: Ino,
    command: u32,
    input: &[u8],
    room: u32,
) -> Result<IoctlReply> {
    let output = match command {
        command if GET_FLAGS.contains(&command) => {
            let flags = call.vfs.flags(ino).await?;
            let mut out = BytesMut::from(&flags.to_ne_bytes()[..]);
            // The type says long, but only an int of it is used.
            out.resize(usize::try_from(room).unwrap_or(0).clamp(4, 8), 0);
            out.freeze()
        }
        command if SET_FLAGS.contains(&command) => {
            let flags = input.first_chunk().ok_or(Error::Invalid)?;
            call.vfs.set_flags(&call.caller, ino, u32::from_ne_bytes(*flags)).await?;
            Bytes::new()
        }
        GET_FSXATTR => {
            let flags = call.vfs.flags(ino).await?;
            let mut out = BytesMut::with_capacity(FSXATTR);
            out.put_u32_ne(fsx_flags(flags));
            out.resize(FSXATTR, 0);
            out.freeze()
        }
        _ => return Err(Error::NotTty),
    };
    Ok(IoctlReply { result: 0, output })
}

/// Converts the two flags that exist there as well.
fn fsx_flags(flags: u32) -> u32 {
    const IMMUTABLE: (u32, u32) = (0x10, 0x08);
    const APPEND: (u32, u32) = (0x20, 0x10);
    [IMMUTABLE, APPEND].iter().filter(|(flag, _)| flags & flag != 0).map(|(_, shown)| shown).sum()
}
