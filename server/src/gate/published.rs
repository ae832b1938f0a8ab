//! Rules that every request reads and an operator changes now and then.
//!
//! A reader compares one generation number, which nobody writes between two changes, with that of
//! the copy which its thread has; only after a change does it take the lock. An `Arc` that every
//! request cloned would be one counter that all cores write.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::limits::Rules;

/// A thread's copy, of the one gate that a process has.
struct Seen {
    gate: u64,
    generation: u64,
    rules: Arc<Rules>,
}

thread_local! {
    static SEEN: RefCell<Option<Seen>> = const { RefCell::new(None) };
}

/// Tells gates apart where a test has several in one process.
static GATES: AtomicU64 = AtomicU64::new(1);

/// The rules that hold.
pub(super) struct Published {
    gate: u64,
    generation: AtomicU64,
    rules: Mutex<Arc<Rules>>,
}

impl Published {
    /// `rules` hold.
    pub(super) fn new(rules: Rules) -> Self {
        let gate = GATES.fetch_add(1, Ordering::Relaxed);
        Self { gate, generation: AtomicU64::new(1), rules: Mutex::new(Arc::new(rules)) }
    }

    /// `rules` hold for every read that begins from now on.
    pub(super) fn publish(&self, rules: Rules) {
        let mut held = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        *held = Arc::new(rules);
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// The rules, for as long as one wants.
    pub(super) fn current(&self) -> Arc<Rules> {
        Arc::clone(&self.rules.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What `read` makes of the rules.
    pub(super) fn with<T>(&self, read: impl FnOnce(&Rules) -> T) -> T {
        // Read first: a copy that is newer than its number says is merely copied once more.
        let generation = self.generation.load(Ordering::Acquire);
        SEEN.with_borrow_mut(|seen| {
            let fits = |seen: &Seen| seen.gate == self.gate && seen.generation == generation;
            if !seen.as_ref().is_some_and(fits) {
                *seen = Some(Seen { gate: self.gate, generation, rules: self.current() });
            }
            match seen {
                Some(seen) => read(&seen.rules),
                None => unreachable!("it was put there"),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn rules(document: &Value) -> Rules {
        Rules::of(document, &Value::Null).unwrap()
    }

    #[test]
    fn what_is_published_is_what_every_thread_reads_next() {
        let published = Published::new(rules(&json!({})));
        let limited = || published.with(|rules| rules.stable.user.0.is_some());
        assert!(!limited());
        std::thread::scope(|scope| {
            assert!(!scope.spawn(limited).join().unwrap());
            published.publish(rules(&json!({"user": "1/1s"})));
            assert!(scope.spawn(limited).join().unwrap());
        });
        assert!(limited());
    }

    #[test]
    fn two_gates_in_one_thread_do_not_see_each_others_rules() {
        let (open, closed) =
            (Published::new(rules(&json!({}))), Published::new(rules(&json!({"user": "1/1s"}))));
        for _ in 0..2 {
            assert!(open.with(|rules| rules.stable.user.0.is_none()));
            assert!(closed.with(|rules| rules.stable.user.0.is_some()));
        }
    }
}
