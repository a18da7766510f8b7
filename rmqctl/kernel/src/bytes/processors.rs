//! The processors that threads are on.
//!
//! Linux often begins or wakes a thread on the processor of the one that does it, also when nobody
//! wants another one, and then lets both take turns for milliseconds: as long as a window of the log,
//! or a pull, takes. So a thread that has something to do beside another one leaves that one's
//! processor first, for which the other one makes way.

use std::sync::OnceLock;
use std::thread;

/// Whether there is a processor for a second thread.
pub fn has_processors() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| thread::available_parallelism().is_ok_and(|count| count.get() > 1))
}

/// The processor of a thread that has another one do something beside it.
#[derive(Debug, Clone, Copy)]
pub struct Asker(Option<usize>);

impl Asker {
    /// This thread is the one.
    pub fn here() -> Self {
        Asker(system::own())
    }

    /// Lets the other thread, which was begun or woken, leave if it waits for this processor.
    pub fn make_way(self) {
        thread::yield_now();
    }

    /// Has this thread, which is the other one, go on elsewhere if it is where the asker was.
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

    /// To any other processor that this thread may be on.
    pub fn leave() {
        let Ok(all) = sched_getaffinity(None) else { return };
        let mut others = all;
        others.unset(sched_getcpu());
        // It goes at once, and then may be anywhere again.
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

    /// Whether a thread that begins where its asker is goes on elsewhere, in some of the times that
    /// it is tried: it may be moved back at once.
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
