//! Compression of blocks: what lies in the bucket, byte for byte as JuiceFS reads it.

use bytes::Bytes;

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

    /// The block again; it must be `size` bytes.
    pub fn unpack(self, body: Bytes, size: usize) -> Result<Bytes, String> {
        let block = match self {
            Self::None => body,
            Self::Lz4 => lz4_flex::block::decompress(&body, size)
                .map_err(|error| format!("lz4: {error}"))?
                .into(),
            Self::Zstd => zstd::bulk::decompress(&body, size)
                .map_err(|error| format!("zstd: {error}"))?
                .into(),
        };
        if block.len() != size {
            return Err(format!("{} bytes instead of {size}", block.len()));
        }
        Ok(block)
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
