//! Compression of blocks: what lies in the bucket, byte for byte as JuiceFS reads it.

use bytes::Bytes;

use crate::page::Buffer;

/// How the blocks of a volume are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    #[default]
    None,
    /// A raw block: no frame, no length.
    Lz4,
    /// A standard frame.
    Zstd,
}

/// The level that JuiceFS writes with; any is read.
const ZSTD_LEVEL: i32 = 1;

impl Compression {
    pub fn pack(self, block: Bytes) -> Result<Bytes, String> {
        match self {
            Self::None => Ok(block),
            Self::Lz4 => Ok(lz4_flex::block::compress(&block).into()),
            Self::Zstd => zstd::bulk::compress(&block, ZSTD_LEVEL)
                .map(Bytes::from)
                .map_err(|error| format!("zstd: {error}")),
        }
    }

    /// The most bytes that a block of this size has when it is packed.
    pub fn most(self, size: u32) -> u64 {
        let size = u64::from(size);
        match self {
            Self::None => size,
            // What does not compress grows, by less than that.
            Self::Lz4 | Self::Zstd => size + size / 128 + 1024,
        }
    }

    /// The block again; it must be `size` bytes.
    pub fn unpack(self, body: Bytes, size: usize) -> Result<Bytes, String> {
        let block = match self {
            Self::None => body,
            Self::Lz4 | Self::Zstd => {
                let mut block = Buffer::try_exactly(size).ok_or("no memory to unpack it")?;
                let length = self.unpack_into(&body, &mut block)?;
                block.freeze().slice(..length)
            }
        };
        if block.len() != size {
            return Err(format!("{} bytes instead of {size}", block.len()));
        }
        Ok(block)
    }
}

impl Compression {
    /// How many bytes it was; an error if there are more than fit.
    fn unpack_into(self, body: &[u8], block: &mut [u8]) -> Result<usize, String> {
        match self {
            Self::Zstd => zstd::bulk::decompress_to_buffer(body, block)
                .map_err(|error| format!("zstd: {error}")),
            _ => lz4_flex::block::decompress_into(body, block)
                .map_err(|error| format!("lz4: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Compression; 3] = [Compression::None, Compression::Lz4, Compression::Zstd];

    #[test]
    fn what_is_packed_unpacks() {
        let noise: Vec<u8> =
            (0..100_000_u32).map(|i| (i.wrapping_mul(i) / 128).to_le_bytes()[0]).collect();
        for block in
            [Bytes::new(), Bytes::from_static(b"x\n"), vec![0; 37_856].into(), noise.into()]
        {
            for compression in ALL {
                let body = compression.pack(block.clone()).unwrap();
                let most = compression.most(u32::try_from(block.len()).unwrap());
                assert!(body.len() as u64 <= most);
                assert_eq!(compression.unpack(body, block.len()).unwrap(), block);
            }
        }
    }

    #[test]
    fn a_block_that_the_go_client_packed_unpacks() {
        let body = Bytes::from_static(&[0x20, b'x', b'\n']);
        assert_eq!(Compression::Lz4.unpack(body, 2).unwrap(), "x\n");
    }

    #[test]
    fn a_block_of_another_size_or_of_noise_is_refused() {
        for compression in ALL {
            let body = compression.pack(Bytes::from_static(b"some bytes")).unwrap();
            for size in [0, 9, 11, 4 << 20] {
                assert!(compression.unpack(body.clone(), size).is_err(), "{compression:?} {size}");
            }
        }
        for compression in [Compression::Lz4, Compression::Zstd] {
            assert!(compression.unpack(Bytes::from_static(&[0xff; 40]), 100).is_err());
        }
    }
}
