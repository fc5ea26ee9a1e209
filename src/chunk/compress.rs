//! Compression of blocks, byte-compatible with JuiceFS.

use bytes::Bytes;

use crate::buffer_pool::Buffer;

/// How the blocks of a volume are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    #[default]
    None,
    /// A raw LZ4 block without a frame or a length.
    Lz4,
    /// A standard Zstandard frame.
    Zstd,
}

/// The level that JuiceFS writes with. Blocks of any level can be read.
const ZSTD_LEVEL: i32 = 1;

impl Compression {
    pub fn compress(self, block: Bytes) -> Result<Bytes, String> {
        match self {
            Self::None => Ok(block),
            Self::Lz4 => Ok(lz4_flex::block::compress(&block).into()),
            Self::Zstd => zstd::bulk::compress(&block, ZSTD_LEVEL)
                .map(Bytes::from)
                .map_err(|error| format!("zstd: {error}")),
        }
    }

    /// Returns the largest size that a block of `size` bytes can have when compressed.
    pub fn max_compressed_size(self, size: u32) -> u64 {
        let size = u64::from(size);
        match self {
            Self::None => size,
            // Incompressible data grows by less than this.
            Self::Lz4 | Self::Zstd => size + size / 128 + 1024,
        }
    }

    /// Decompresses a block, which must have `size` bytes.
    pub fn decompress(self, body: Bytes, size: usize) -> Result<Bytes, String> {
        let block = match self {
            Self::None => body,
            Self::Lz4 | Self::Zstd => {
                let mut block = Buffer::try_exactly(size).ok_or("no memory to decompress it")?;
                let length = self.decompress_into(&body, &mut block)?;
                block.freeze().slice(..length)
            }
        };
        if block.len() != size {
            return Err(format!("it has {} bytes instead of {size}", block.len()));
        }
        Ok(block)
    }
}

impl Compression {
    /// Returns the decompressed length, or an error if it does not fit into `block`.
    fn decompress_into(self, body: &[u8], block: &mut [u8]) -> Result<usize, String> {
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
    fn compressed_blocks_decompress() {
        let noise: Vec<u8> =
            (0..100_000_u32).map(|i| (i.wrapping_mul(i) / 128).to_le_bytes()[0]).collect();
        for block in
            [Bytes::new(), Bytes::from_static(b"x\n"), vec![0; 37_856].into(), noise.into()]
        {
            for compression in ALL {
                let body = compression.compress(block.clone()).unwrap();
                let most = compression.max_compressed_size(u32::try_from(block.len()).unwrap());
                assert!(body.len() as u64 <= most);
                assert_eq!(compression.decompress(body, block.len()).unwrap(), block);
            }
        }
    }

    #[test]
    fn a_block_that_the_go_client_compressed_decompresses() {
        let body = Bytes::from_static(&[0x20, b'x', b'\n']);
        assert_eq!(Compression::Lz4.decompress(body, 2).unwrap(), "x\n");
    }

    #[test]
    fn a_block_of_another_size_or_of_noise_is_an_error() {
        for compression in ALL {
            let body = compression.compress(Bytes::from_static(b"some bytes")).unwrap();
            for size in [0, 9, 11, 4 << 20] {
                assert!(
                    compression.decompress(body.clone(), size).is_err(),
                    "{compression:?} {size}"
                );
            }
        }
        for compression in [Compression::Lz4, Compression::Zstd] {
            assert!(compression.decompress(Bytes::from_static(&[0xff; 40]), 100).is_err());
        }
    }
}
