//! Random interleavings of tasks that reserve memory from a budget and its parts.
//!
//! A task is polled only after its waker was called, so a lost wake-up is a reservation that is never
//! made. Tasks that wait hold nothing, as the budget requires.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use proptest::prelude::*;

use super::{Budget, Reclaim, Reserved};
use crate::sync::Mutex;

const KIB: usize = 1 << 10;

struct Waiter {
    reservation: Pin<Box<dyn Future<Output = Reserved>>>,
    woken: Arc<Woken>,
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Reservations that are released when a task waits.
#[derive(Default)]
struct Cache(Mutex<Vec<Reserved>>);

impl Reclaim for Cache {
    fn reclaim(&self, bytes: usize) -> usize {
        let mut released = 0;
        while released < bytes {
            let Some(reserved) = self.0.lock().pop() else { break };
            released += reserved.bytes();
        }
        released
    }
}

struct Model {
    /// The whole budget, and two parts of it that are larger together.
    budgets: [Arc<Budget>; 3],
    waiters: Vec<Waiter>,
    held: Vec<Reserved>,
    cache: Arc<Cache>,
}

impl Model {
    fn new() -> Self {
        let whole = Budget::new(16 * KIB);
        let budgets = [Arc::clone(&whole), whole.part(10 * KIB), whole.part(12 * KIB)];
        let cache: Arc<Cache> = Arc::default();
        let reclaim: Arc<dyn Reclaim> = cache.clone();
        for budget in &budgets {
            budget.reclaim_from(Arc::downgrade(&reclaim));
        }
        Self { budgets, waiters: Vec::new(), held: Vec::new(), cache }
    }

    fn act(&mut self, action: u8, choice: u8) {
        let choice = usize::from(choice);
        match action % 8 {
            0 | 1 => {
                let budget = Arc::clone(&self.budgets[choice % 3]);
                let bytes = (1 + choice / 3 % 18) * KIB;
                let woken = Arc::new(Woken(AtomicBool::new(true)));
                let reservation = Box::pin(async move { budget.reserve(bytes).await });
                self.waiters.push(Waiter { reservation, woken });
            }
            2 | 3 => _ = self.poll_one(choice),
            4 if !self.held.is_empty() => drop(self.held.swap_remove(choice % self.held.len())),
            5 if !self.held.is_empty() => {
                let index = choice % self.held.len();
                let part = self.held[index].split(KIB);
                self.held.extend(part);
            }
            6 if !self.waiters.is_empty() => {
                drop(self.waiters.swap_remove(choice % self.waiters.len()));
            }
            7 => {
                // What is cached while a task waits would not be released for it.
                let budget = &self.budgets[choice % 3];
                if let Some(reserved) = budget.try_reserve(KIB)
                    && !budget.has_waiters()
                {
                    self.cache.0.lock().push(reserved);
                }
            }
            _ => {}
        }
        for budget in &self.budgets {
            assert!(budget.used() <= budget.capacity(), "{} bytes in use", budget.used());
        }
    }

    /// Polls one of the tasks that were woken. Returns whether there was one.
    fn poll_one(&mut self, choice: usize) -> bool {
        let is_woken = |waiter: &Waiter| waiter.woken.0.load(Ordering::SeqCst);
        let woken: Vec<usize> =
            (0..self.waiters.len()).filter(|index| is_woken(&self.waiters[*index])).collect();
        let Some(&index) = woken.get(choice % woken.len().max(1)) else { return false };
        let waiter = &mut self.waiters[index];
        waiter.woken.0.store(false, Ordering::SeqCst);
        let waker = Waker::from(Arc::clone(&waiter.woken));
        if let Poll::Ready(reserved) =
            waiter.reservation.as_mut().poll(&mut Context::from_waker(&waker))
        {
            drop(self.waiters.swap_remove(index));
            self.held.push(reserved);
        }
        true
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn no_budget_is_exceeded_and_every_waiting_task_gets_its_memory(
        actions in prop::collection::vec(any::<(u8, u8)>(), 0..200)
    ) {
        let mut model = Model::new();
        for (action, choice) in actions {
            model.act(action, choice);
        }
        loop {
            model.held.clear();
            model.cache.0.lock().clear();
            if !model.poll_one(0) {
                break;
            }
        }
        prop_assert!(model.waiters.is_empty(), "{} tasks wait for ever", model.waiters.len());
        for budget in &model.budgets {
            prop_assert_eq!((budget.used(), budget.has_waiters()), (0, false));
        }
    }
}
