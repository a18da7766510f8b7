//! Moves threads to other processors.
//!
//! Linux often starts or wakes a thread on the processor of the thread that did it, even if other
//! processors are idle. Then the two take turns for milliseconds, which is as long as a whole window of
//! the log or a pull takes. So a helper thread first leaves the processor of the thread that asked it,
//! and that thread yields once to let it.

use std::sync::OnceLock;
use std::thread;

/// Whether there is a processor for a second thread.
pub fn has_processors() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| thread::available_parallelism().is_ok_and(|count| count.get() > 1))
}

/// The processor on which the asking thread runs.
#[derive(Debug, Clone, Copy)]
pub struct Asker(Option<usize>);

impl Asker {
    /// Call this in the asking thread.
    pub fn here() -> Self {
        Asker(system::own())
    }

    /// Call this in the asking thread when the helper was started or woken: yields, so that the helper
    /// can leave if it waits for this processor.
    pub fn make_way(self) {
        thread::yield_now();
    }

    /// Call this in the helper: moves it to another processor if it is on that of the asking thread.
    pub fn leave(self) {
        if self.is_here() {
            system::leave();
        }
    }

    fn is_here(self) -> bool {
        self.0.is_some() && self.0 == system::own()
    }
}

#[cfg(target_os = "linux")]
mod system {
    use rustix::thread::{sched_getaffinity, sched_getcpu, sched_setaffinity};

    pub fn own() -> Option<usize> {
        Some(sched_getcpu())
    }

    /// Moves this thread to any other processor that its affinity allows.
    pub fn leave() {
        let Ok(all) = sched_getaffinity(None) else { return };
        let mut others = all;
        others.unset(sched_getcpu());
        // The first call moves it at once. The second one gives it its affinity back.
        if others.count() > 0 && sched_setaffinity(None, &others).is_ok() {
            let _ = sched_setaffinity(None, &all);
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    pub fn own() -> Option<usize> {
        None
    }

    pub fn leave() {}
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::thread;

    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    use super::Asker;

    fn may_be_on() -> CpuSet {
        sched_getaffinity(None).expect("a thread has processors")
    }

    /// Whether a thread on the processor of its asker moves elsewhere. It is tried several times,
    /// because the system may move the thread back at once.
    fn leaves() -> bool {
        (0..100).any(|_| {
            let asker = Asker::here();
            asker.leave();
            Asker::here().0 != asker.0
        })
    }

    #[test]
    fn a_thread_leaves_and_may_come_back() {
        thread::scope(|scope| {
            scope.spawn(|| {
                let before = may_be_on();
                assert_eq!(leaves(), before.count() > 1);
                assert_eq!(may_be_on(), before);
            });
        });
    }

    #[test]
    fn a_thread_that_may_be_nowhere_else_stays() {
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut own = CpuSet::new();
                own.set(Asker::here().0.expect("a number"));
                sched_setaffinity(None, &own).expect("a processor it is on");
                assert!(!leaves());
                assert_eq!(may_be_on(), own);
            });
        });
    }

    #[test]
    fn who_is_elsewhere_has_nobody_to_leave() {
        thread::scope(|scope| {
            scope.spawn(|| {
                let own = Asker::here().0.expect("a number");
                let mut only = CpuSet::new();
                only.set(own);
                sched_setaffinity(None, &only).expect("a processor it was on");
                assert!(Asker(Some(own)).is_here());
                assert!(!Asker(Some(own + 1)).is_here());
                assert!(!Asker(None).is_here());
            });
        });
    }
}
