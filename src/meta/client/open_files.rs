//! Open files: which inodes this client holds open, and what it knows of them meanwhile.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::meta::Ino;
use crate::meta::record::{Attr, Slice};

/// The slices of one chunk laid end to end, as a read sees them.
pub type View = Arc<Vec<Slice>>;

/// Files open in this client. Other clients do not know of them.
pub struct OpenFiles {
    files: Mutex<HashMap<Ino, OpenFile>>,
    /// How long an attr is trusted without asking.
    lifetime: Duration,
    /// Closed files that are remembered for their attr.
    limit: usize,
}

struct OpenFile {
    handles: u32,
    attr: Attr,
    checked: Instant,
    views: HashMap<u32, View>,
}

impl OpenFiles {
    pub fn new(lifetime: Duration, limit: usize) -> Self {
        Self { files: Mutex::default(), lifetime, limit }
    }

    /// Counts a handle. Answers whether the content is as it was when this client last looked, so
    /// that what the kernel has cached of it is still good.
    pub fn open(&self, ino: Ino, attr: &Attr) -> bool {
        let mut files = self.lock();
        let now = Instant::now();
        if let Some(file) = files.get_mut(&ino) {
            file.handles += 1;
            return file.refresh(attr, now);
        }
        if self.limit > 0 && files.len() >= self.limit {
            files.retain(|_, file| file.handles > 0 || now - file.checked < self.lifetime);
        }
        files.insert(
            ino,
            OpenFile { handles: 1, attr: attr.clone(), checked: now, views: HashMap::new() },
        );
        false
    }

    /// Opens from what is known, if it is known recently enough.
    pub fn reopen(&self, ino: Ino) -> Option<Attr> {
        let mut files = self.lock();
        let file = files.get_mut(&ino)?;
        if self.lifetime.is_zero() || file.checked.elapsed() > self.lifetime {
            return None;
        }
        file.handles += 1;
        Some(file.attr.clone())
    }

    /// Gives a handle back; true if it was the last one.
    pub fn close(&self, ino: Ino) -> bool {
        let mut files = self.lock();
        let Some(file) = files.get_mut(&ino) else { return true };
        file.handles = file.handles.saturating_sub(1);
        if file.handles > 0 {
            return false;
        }
        file.views.clear();
        if self.lifetime.is_zero() {
            files.remove(&ino);
        }
        true
    }

    pub fn is_open(&self, ino: Ino) -> bool {
        self.lock().get(&ino).is_some_and(|file| file.handles > 0)
    }

    /// The attr of an open file, if it was read recently enough.
    pub fn attr(&self, ino: Ino) -> Option<Attr> {
        let files = self.lock();
        let file = files.get(&ino)?;
        (!self.lifetime.is_zero() && file.checked.elapsed() <= self.lifetime)
            .then(|| file.attr.clone())
    }

    /// Takes note of an attr just read or written.
    pub fn saw(&self, ino: Ino, attr: &Attr) {
        if let Some(file) = self.lock().get_mut(&ino) {
            file.refresh(attr, Instant::now());
        }
    }

    pub fn view(&self, ino: Ino, index: u32) -> Option<View> {
        self.lock().get(&ino)?.views.get(&index).cloned()
    }

    /// Remembers a view of an open file, if its content is still the one the view was read with.
    pub fn keep_view(&self, ino: Ino, index: u32, view: View) {
        if let Some(file) = self.lock().get_mut(&ino).filter(|file| file.handles > 0) {
            file.views.insert(index, view);
        }
    }

    /// Forgets the view of one chunk.
    pub fn drop_view(&self, ino: Ino, index: u32) {
        if let Some(file) = self.lock().get_mut(&ino) {
            file.views.remove(&index);
        }
    }

    /// Forgets everything but that the file is open.
    pub fn forget(&self, ino: Ino) {
        let mut files = self.lock();
        if let Some(file) = files.get_mut(&ino) {
            file.views.clear();
            match Instant::now().checked_sub(self.lifetime + Duration::from_millis(1)) {
                Some(past) => file.checked = past,
                None if file.handles == 0 => drop(files.remove(&ino)),
                None => {}
            }
        }
    }

    /// Every inode with an open handle.
    pub fn all(&self) -> Vec<Ino> {
        self.lock().iter().filter(|(_, file)| file.handles > 0).map(|(ino, _)| *ino).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Ino, OpenFile>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenFile {
    /// True if the content did not change since the last look.
    fn refresh(&mut self, attr: &Attr, now: Instant) -> bool {
        let same = self.attr.mtime == attr.mtime && self.attr.length == attr.length;
        if !same {
            self.views.clear();
        }
        self.attr = attr.clone();
        self.checked = now;
        same
    }
}
