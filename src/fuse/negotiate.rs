//! INIT: what the kernel offers, what we wish for, what both agree on.

use fuser::InitFlags;
use serde::{Deserialize, Serialize};

use super::abi;
use super::decode::InitOffer;
use super::head::Head;
use crate::error::{Error, Result};

const PAGE: u32 = 4096;
/// Without `MAX_PAGES` no request has more data.
const SMALL_IO: u32 = 128 << 10;
/// The kernel's own limit (`fs.fuse.max_pages_limit`), as it comes.
const LARGE_IO: u32 = 1 << 20;

/// Whether listing a directory also answers the attributes of what is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlusMode {
    Never,
    /// As the kernel sees fit: if what was listed is looked at, too.
    Auto,
    Always,
}

/// What we would like; the kernel may know less.
#[derive(Debug, Clone)]
pub struct Wishes {
    /// Bytes of data in one request, at most.
    pub max_io: u32,
    pub max_readahead: u32,
    /// Requests that nobody waits for, such as read-ahead, in flight at once.
    pub max_background: u16,
    pub plus: PlusMode,
    /// Writes are kept in the page cache and come later.
    pub writeback_cache: bool,
    /// Direct I/O of one call is sent as several requests at once.
    pub async_dio: bool,
    /// The kernel checks POSIX ACLs, and leaves the umask to us.
    pub posix_acl: bool,
    /// We drop the setuid and setgid bits ourselves when told so, and the kernel need not ask for
    /// capabilities before each write.
    pub kill_suidgid: bool,
    /// Files may be served by a [`Backing`](super::Backing).
    pub passthrough: bool,
}

impl Default for Wishes {
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
        }
    }
}

impl Wishes {
    fn flags(&self) -> InitFlags {
        // No ATOMIC_O_TRUNC: truncating by open arrives as a setattr, as JuiceFS has it. No
        // zero-message opens: handles matter here.
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
            | InitFlags::FUSE_HAS_RESEND
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
        flags
    }
}

/// What holds for the life of a mount. Whoever goes on with its descriptor needs to know it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agreed {
    pub minor: u32,
    /// Bits of [`InitFlags`].
    pub flags: u64,
    pub max_write: u32,
    pub max_readahead: u32,
    pub max_background: u16,
}

impl Agreed {
    /// Answers an offer. The kernel's major version must be ours.
    pub fn new(offer: &InitOffer, wishes: &Wishes) -> Result<Self> {
        if (offer.major, offer.minor) < (abi::MAJOR, abi::OLDEST_MINOR) {
            let (major, minor) = (offer.major, offer.minor);
            return Err(Error::Refused(format!(
                "the kernel speaks FUSE {major}.{minor}; {}.{} (Linux 4.20) is needed",
                abi::MAJOR,
                abi::OLDEST_MINOR
            )));
        }
        let mut flags = InitFlags::from_bits_retain(offer.flags) & wishes.flags();
        if wishes.posix_acl && !flags.contains(InitFlags::FUSE_POSIX_ACL) {
            return Err(Error::Refused("the kernel has no POSIX ACLs for FUSE".into()));
        }
        // The kernel refuses both together.
        if flags.contains(InitFlags::FUSE_WRITEBACK_CACHE) {
            flags.remove(InitFlags::FUSE_PASSTHROUGH);
        }
        let most = if flags.contains(InitFlags::FUSE_MAX_PAGES) { LARGE_IO } else { SMALL_IO };
        Ok(Self {
            minor: offer.minor.min(abi::MINOR),
            flags: flags.bits(),
            max_write: wishes.max_io.clamp(PAGE, most),
            max_readahead: wishes.max_readahead.min(offer.max_readahead),
            max_background: wishes.max_background,
        })
    }

    pub fn flags(&self) -> InitFlags {
        InitFlags::from_bits_retain(self.flags)
    }

    /// Whether the kernel sends again what is in flight when asked to.
    pub fn can_resend(&self) -> bool {
        self.flags().contains(InitFlags::FUSE_HAS_RESEND)
    }

    /// Bytes the longest request can have. Attributes of 64 KiB must fit, however small the I/O.
    pub(super) fn request_max(&self) -> usize {
        let data = self.max_write.max(SMALL_IO);
        usize::try_from(data + PAGE).unwrap_or(usize::MAX)
    }

    pub(super) fn encode(&self, head: &mut Head) {
        let low = u32::try_from(self.flags & u64::from(u32::MAX)).unwrap_or(0);
        let high = u32::try_from(self.flags >> 32).unwrap_or(0);
        head.u32(abi::MAJOR);
        head.u32(abi::MINOR);
        head.u32(self.max_readahead);
        head.u32(low);
        head.bytes(&self.max_background.to_ne_bytes());
        // Beyond three quarters the kernel slows down those who fill the queue.
        let congested = u16::try_from(u32::from(self.max_background) * 3 / 4).unwrap_or(u16::MAX);
        head.bytes(&congested.to_ne_bytes());
        head.u32(self.max_write);
        // Times have nanoseconds.
        head.u32(1);
        let pages = u16::try_from(self.max_write.div_ceil(PAGE)).unwrap_or(u16::MAX);
        head.bytes(&pages.to_ne_bytes());
        head.zeros(2);
        head.u32(high);
        // A backing file may itself lie on one stacked file system.
        head.u32(u32::from(self.flags().contains(InitFlags::FUSE_PASSTHROUGH)));
        head.zeros(24);
    }
}

/// The answer to a kernel with a newer major version: it then tries again with ours.
pub(super) fn encode_version(head: &mut Head) {
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
    fn only_what_is_offered_and_wished_is_agreed() {
        let offered = InitFlags::FUSE_MAX_PAGES | InitFlags::FUSE_SPLICE_READ;
        let agreed = Agreed::new(&offer(offered), &Wishes::default()).unwrap();
        assert_eq!(agreed.flags(), InitFlags::FUSE_MAX_PAGES);
        assert_eq!(agreed.max_readahead, 128 << 10);
    }

    #[test]
    fn requests_stay_small_if_the_kernel_does_not_know_large_ones() {
        let wishes = Wishes { max_io: 1 << 20, ..Wishes::default() };
        let small = Agreed::new(&offer(InitFlags::empty()), &wishes).unwrap();
        let large = Agreed::new(&offer(InitFlags::FUSE_MAX_PAGES), &wishes).unwrap();
        assert_eq!((small.max_write, large.max_write), (128 << 10, 1 << 20));
    }

    #[test]
    fn a_kernel_that_is_too_old_is_refused() {
        let old = InitOffer { minor: 27, ..offer(InitFlags::all()) };
        let refused = Agreed::new(&old, &Wishes::default()).unwrap_err();
        assert!(refused.to_string().contains("7.27"), "{refused}");
    }

    #[test]
    fn acls_are_never_silently_left_out() {
        let wishes = Wishes { posix_acl: true, ..Wishes::default() };
        assert!(Agreed::new(&offer(InitFlags::empty()), &wishes).is_err());
        let agreed = Agreed::new(&offer(InitFlags::all()), &wishes).unwrap();
        assert!(agreed.flags().contains(InitFlags::FUSE_POSIX_ACL | InitFlags::FUSE_DONT_MASK));
    }

    #[test]
    fn listing_with_attributes_follows_the_wish() {
        let both = InitFlags::FUSE_DO_READDIRPLUS | InitFlags::FUSE_READDIRPLUS_AUTO;
        let flags = |plus| Wishes { plus, ..Wishes::default() }.flags() & both;
        assert_eq!(flags(PlusMode::Never), InitFlags::empty());
        assert_eq!(flags(PlusMode::Auto), both);
        assert_eq!(flags(PlusMode::Always), InitFlags::FUSE_DO_READDIRPLUS);
    }

    #[test]
    fn what_was_agreed_survives_being_stored() {
        let agreed = Agreed::new(&offer(InitFlags::all()), &Wishes::default()).unwrap();
        let stored = serde_json::to_string(&agreed).unwrap();
        assert_eq!(serde_json::from_str::<Agreed>(&stored).unwrap(), agreed);
    }

    #[test]
    fn the_answer_to_init_has_the_length_and_places_of_the_protocol() {
        let wishes = Wishes { max_io: 1 << 20, ..Wishes::default() };
        let agreed = Agreed::new(&offer(InitFlags::all()), &wishes).unwrap();
        let mut head = Head::empty();
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
