//! A time limit for tests that can hang: a test that accesses a mount runs inside [`within`].

use std::cell::RefCell;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{panic, thread};

/// Long enough for a busy machine, short enough to see which test hangs.
pub const MOUNTED: Duration = Duration::from_mins(2);

type Cleanup = Box<dyn FnOnce() + Send>;
type Cleanups = Arc<Mutex<Vec<Cleanup>>>;

thread_local! {
    static SCOPE: RefCell<Option<Cleanups>> = const { RefCell::new(None) };
}

/// Runs the test body on a thread of its own and fails the test if it takes longer than the limit.
///
/// A thread that hangs in the kernel never drops its guards, so their cleanup is registered with
/// [`on_timeout`] and runs on this thread.
pub fn within<T: Send + 'static>(limit: Duration, body: impl FnOnce() -> T + Send + 'static) -> T {
    let cleanups = Cleanups::default();
    let scope = Arc::clone(&cleanups);
    let (done, waiting) = channel();
    let name = thread::current().name().unwrap_or("test").to_owned();
    let running = thread::Builder::new().name(name).spawn(move || {
        SCOPE.set(Some(scope));
        let output = body();
        let _ = done.send(());
        output
    });
    let running = running.unwrap();
    match waiting.recv_timeout(limit) {
        // The sender is dropped unused when the body panics.
        Ok(()) | Err(RecvTimeoutError::Disconnected) => match running.join() {
            Ok(output) => output,
            Err(cause) => panic::resume_unwind(cause),
        },
        Err(RecvTimeoutError::Timeout) => {
            for cleanup in cleanups.lock().unwrap().drain(..).rev() {
                cleanup();
            }
            panic!("the test did not finish within {limit:?}");
        }
    }
}

/// Returns whether the running test has a limit.
pub fn has_limit() -> bool {
    SCOPE.with_borrow(Option::is_some)
}

/// Registers a cleanup for when the running test reaches its limit. It may run after the test has
/// cleaned up itself.
///
/// # Panics
/// Outside [`within`]: a test that mounts something must have a limit.
pub fn on_timeout(cleanup: impl FnOnce() + Send + 'static) {
    SCOPE.with_borrow(|scope| {
        let scope = scope.as_ref().expect("a test that mounts must run inside timeout::within");
        scope.lock().unwrap().push(Box::new(cleanup));
    });
}

/// Waits if the hour is about to change: the trash has a directory for each hour.
pub fn avoid_hour_change() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let left = 3600 - now % 3600;
    if left < 10 {
        thread::sleep(Duration::from_secs(left));
    }
}
