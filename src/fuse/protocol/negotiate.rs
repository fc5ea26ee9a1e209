//! INIT: negotiates version, features and limits with the kernel.

use fuser::InitFlags;
use serde::{Deserialize, Serialize};

use super::abi;
use super::decode::InitOffer;
use super::message_head::MessageHead;
use crate::error::{Error, Result};

const PAGE: u32 = 4096;
/// The most data in a request without `MAX_PAGES`.
const SMALL_IO: u32 = 128 << 10;
/// The kernel's default limit (`fs.fuse.max_pages_limit`).
const LARGE_IO: u32 = 1 << 20;

/// The first minor version whose kernels check what a reply to an INTERRUPT names.
const TELLS_UNANSWERED: u32 = 29;

/// Whether listing a directory also returns attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlusMode {
    Never,
    /// As the kernel decides: if the listed files are accessed, too.
    Auto,
    Always,
}

/// The features and limits to ask for; the kernel may support less.
#[derive(Debug, Clone)]
pub struct InitOptions {
    /// The most data in one request, in bytes.
    pub max_io: u32,
    pub max_readahead: u32,
    /// The most background requests, such as readahead, in flight.
    pub max_background: u16,
    pub plus: PlusMode,
    /// The kernel delays writes in the page cache.
    pub writeback_cache: bool,
    /// Direct I/O of one call is sent as several requests at once.
    pub async_dio: bool,
    /// The kernel checks POSIX ACLs, and leaves the umask to us.
    pub posix_acl: bool,
    /// The file system clears the setuid and setgid bits itself when asked to, and the kernel need
    /// not read capabilities before each write.
    pub kill_suidgid: bool,
    /// Files may be served by a [`Backing`](super::super::Backing).
    pub passthrough: bool,
    /// The kernel sends requests again to the next process, if it can. Without, as on kernels that
    /// cannot, the next process finds them in memory.
    pub resend: bool,
}

impl Default for InitOptions {
    fn default() -> Self {
        Self {
            max_io: SMALL_IO,
            max_readahead: LARGE_IO,
            max_background: 50,
            plus: PlusMode::Auto,
            writeback_cache: false,
            async_dio: false,
            posix_acl: false,
            kill_suidgid: false,
            passthrough: false,
            resend: true,
        }
    }
}

impl InitOptions {
    fn flags(&self) -> InitFlags {
        // No ATOMIC_O_TRUNC: truncating by open arrives as a setattr, as in JuiceFS. No
        // zero-message opens: this file system needs its handles.
        let mut flags = InitFlags::FUSE_ASYNC_READ
            | InitFlags::FUSE_POSIX_LOCKS
            | InitFlags::FUSE_FLOCK_LOCKS
            | InitFlags::FUSE_BIG_WRITES
            | InitFlags::FUSE_EXPORT_SUPPORT
            | InitFlags::FUSE_HAS_IOCTL_DIR
            | InitFlags::FUSE_AUTO_INVAL_DATA
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_ABORT_ERROR
            | InitFlags::FUSE_MAX_PAGES
            | InitFlags::FUSE_CACHE_SYMLINKS
            | InitFlags::FUSE_SETXATTR_EXT
            | InitFlags::FUSE_INIT_EXT
            | InitFlags::FUSE_HAS_EXPIRE_ONLY
            // A file that is open for direct I/O can still be mapped.
            | InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP;
        let acl = InitFlags::FUSE_POSIX_ACL | InitFlags::FUSE_DONT_MASK;
        flags.set(InitFlags::FUSE_DO_READDIRPLUS, self.plus != PlusMode::Never);
        flags.set(InitFlags::FUSE_READDIRPLUS_AUTO, self.plus == PlusMode::Auto);
        flags.set(InitFlags::FUSE_WRITEBACK_CACHE, self.writeback_cache);
        flags.set(InitFlags::FUSE_ASYNC_DIO, self.async_dio);
        flags.set(acl, self.posix_acl);
        flags.set(InitFlags::FUSE_HANDLE_KILLPRIV_V2, self.kill_suidgid);
        flags.set(InitFlags::FUSE_PASSTHROUGH, self.passthrough);
        flags.set(InitFlags::FUSE_HAS_RESEND, self.resend);
        flags
    }
}

/// The result of INIT, which holds as long as the mount. The next holder of the descriptor needs
/// it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Negotiated {
    pub minor: u32,
    /// Bits of [`InitFlags`].
    pub flags: u64,
    pub max_write: u32,
    pub max_readahead: u32,
    pub max_background: u16,
}

impl Negotiated {
    /// Accepts an offer. The kernel's major version must be ours.
    pub fn new(offer: &InitOffer, init: &InitOptions) -> Result<Self> {
        if (offer.major, offer.minor) < (abi::MAJOR, abi::OLDEST_MINOR) {
            let (major, minor) = (offer.major, offer.minor);
            return Err(Error::Refused(format!(
                "the kernel speaks FUSE {major}.{minor}; {}.{} (Linux 4.20) or newer is needed",
                abi::MAJOR,
                abi::OLDEST_MINOR
            )));
        }
        let mut flags = InitFlags::from_bits_retain(offer.flags) & init.flags();
        if init.posix_acl && !flags.contains(InitFlags::FUSE_POSIX_ACL) {
            return Err(Error::Refused("the kernel does not support POSIX ACLs for FUSE".into()));
        }
        // The kernel rejects both together.
        if flags.contains(InitFlags::FUSE_WRITEBACK_CACHE) {
            flags.remove(InitFlags::FUSE_PASSTHROUGH);
        }
        let most = if flags.contains(InitFlags::FUSE_MAX_PAGES) { LARGE_IO } else { SMALL_IO };
        Ok(Self {
            minor: offer.minor.min(abi::MINOR),
            flags: flags.bits(),
            max_write: init.max_io.clamp(PAGE, most),
            max_readahead: init.max_readahead.min(offer.max_readahead),
            max_background: init.max_background,
        })
    }

    pub fn flags(&self) -> InitFlags {
        InitFlags::from_bits_retain(self.flags)
    }

    /// Whether the kernel can resend requests in flight.
    pub fn can_resend(&self) -> bool {
        self.flags().contains(InitFlags::FUSE_HAS_RESEND)
    }

    /// Whether the kernel tells which requests have no reply yet; since Linux 5.1.
    pub(in crate::fuse) fn tells_unanswered(&self) -> bool {
        self.minor >= TELLS_UNANSWERED
    }

    /// Bytes of the longest request. Extended attributes of 64 KiB must fit, however small the I/O.
    pub(in crate::fuse) fn request_max(&self) -> usize {
        let data = self.max_write.max(SMALL_IO);
        usize::try_from(data + PAGE).unwrap_or(usize::MAX)
    }

    pub(in crate::fuse) fn encode(&self, head: &mut MessageHead) {
        let low = u32::try_from(self.flags & u64::from(u32::MAX)).unwrap_or(0);
        let high = u32::try_from(self.flags >> 32).unwrap_or(0);
        head.u32(abi::MAJOR);
        head.u32(abi::MINOR);
        head.u32(self.max_readahead);
        head.u32(low);
        head.bytes(&self.max_background.to_ne_bytes());
        // Beyond three quarters the kernel throttles the processes that fill the queue.
        let congested = u16::try_from(u32::from(self.max_background) * 3 / 4).unwrap_or(u16::MAX);
        head.bytes(&congested.to_ne_bytes());
        head.u32(self.max_write);
        // Times have nanoseconds.
        head.u32(1);
        let pages = u16::try_from(self.max_write.div_ceil(PAGE)).unwrap_or(u16::MAX);
        head.bytes(&pages.to_ne_bytes());
        head.zeros(2);
        head.u32(high);
        // A backing file may itself be on one stacked file system.
        head.u32(u32::from(self.flags().contains(InitFlags::FUSE_PASSTHROUGH)));
        head.zeros(24);
    }
}

/// Encodes the reply to a kernel with a newer major version, which then tries again with ours.
pub(in crate::fuse) fn encode_version(head: &mut MessageHead) {
    head.u32(abi::MAJOR);
    head.u32(abi::MINOR);
    head.zeros(56);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(flags: InitFlags) -> InitOffer {
        InitOffer { major: 7, minor: 45, max_readahead: 128 << 10, flags: flags.bits() }
    }

    #[test]
    fn only_flags_offered_and_asked_for_are_agreed() {
        let offered = InitFlags::FUSE_MAX_PAGES | InitFlags::FUSE_SPLICE_READ;
        let agreed = Negotiated::new(&offer(offered), &InitOptions::default()).unwrap();
        assert_eq!(agreed.flags(), InitFlags::FUSE_MAX_PAGES);
        assert_eq!(agreed.max_readahead, 128 << 10);
    }

    #[test]
    fn requests_stay_small_without_max_pages() {
        let init = InitOptions { max_io: 1 << 20, ..InitOptions::default() };
        let small = Negotiated::new(&offer(InitFlags::empty()), &init).unwrap();
        let large = Negotiated::new(&offer(InitFlags::FUSE_MAX_PAGES), &init).unwrap();
        assert_eq!((small.max_write, large.max_write), (128 << 10, 1 << 20));
    }

    #[test]
    fn a_kernel_that_is_too_old_is_refused() {
        let old = InitOffer { minor: 27, ..offer(InitFlags::all()) };
        let refused = Negotiated::new(&old, &InitOptions::default()).unwrap_err();
        assert!(refused.to_string().contains("7.27"), "{refused}");
    }

    #[test]
    fn acls_are_never_silently_left_out() {
        let init = InitOptions { posix_acl: true, ..InitOptions::default() };
        assert!(Negotiated::new(&offer(InitFlags::empty()), &init).is_err());
        let agreed = Negotiated::new(&offer(InitFlags::all()), &init).unwrap();
        assert!(agreed.flags().contains(InitFlags::FUSE_POSIX_ACL | InitFlags::FUSE_DONT_MASK));
    }

    #[test]
    fn readdirplus_follows_the_option() {
        let both = InitFlags::FUSE_DO_READDIRPLUS | InitFlags::FUSE_READDIRPLUS_AUTO;
        let flags = |plus| InitOptions { plus, ..InitOptions::default() }.flags() & both;
        assert_eq!(flags(PlusMode::Never), InitFlags::empty());
        assert_eq!(flags(PlusMode::Auto), both);
        assert_eq!(flags(PlusMode::Always), InitFlags::FUSE_DO_READDIRPLUS);
    }

    #[test]
    fn a_negotiated_result_survives_serialization() {
        let agreed = Negotiated::new(&offer(InitFlags::all()), &InitOptions::default()).unwrap();
        let stored = serde_json::to_string(&agreed).unwrap();
        assert_eq!(serde_json::from_str::<Negotiated>(&stored).unwrap(), agreed);
    }

    #[test]
    fn the_reply_to_init_has_the_layout_of_the_protocol() {
        let init = InitOptions { max_io: 1 << 20, ..InitOptions::default() };
        let agreed = Negotiated::new(&offer(InitFlags::all()), &init).unwrap();
        let mut head = MessageHead::empty();
        agreed.encode(&mut head);
        let bytes = head.as_bytes();
        assert_eq!(bytes.len(), 64);
        assert_eq!(
            bytes[12..16],
            (u32::try_from(agreed.flags & 0xFFFF_FFFF).unwrap()).to_ne_bytes()
        );
        assert_eq!(bytes[16..18], 50_u16.to_ne_bytes());
        assert_eq!(bytes[18..20], 37_u16.to_ne_bytes());
        assert_eq!(bytes[20..24], (1_u32 << 20).to_ne_bytes());
        assert_eq!(bytes[28..30], 256_u16.to_ne_bytes());
        assert_eq!(bytes[32..36], (u32::try_from(agreed.flags >> 32).unwrap()).to_ne_bytes());
    }
}
