//! Who asks.

/// The identity behind a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    pub uid: u32,
    pub gid: u32,
    /// Supplementary groups; only filled when this client checks permissions.
    pub gids: Vec<u32>,
    pub pid: u32,
    /// Whether this client checks mode bits itself; otherwise the kernel has done it.
    pub check: bool,
}

impl Caller {
    /// Root, with nothing to check.
    pub fn root() -> Self {
        Self { uid: 0, gid: 0, gids: Vec::new(), pid: std::process::id(), check: false }
    }

    pub fn user(uid: u32, gid: u32) -> Self {
        Self { uid, gid, gids: Vec::new(), pid: std::process::id(), check: false }
    }

    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.gids.contains(&gid)
    }
}
