//! The trash's hour directories.

use tokio::sync::Mutex;

use crate::meta::Ino;

/// The hour directory in use, so that a removal needs no look-up of it.
#[derive(Default)]
pub struct HourDir {
    current: Mutex<Option<(i64, Ino)>>,
}
