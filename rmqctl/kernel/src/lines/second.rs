//! A second thread that does one job at a time for another thread. It lives from job to job, because
//! starting a thread takes as long as making a hundred lines. When other processes need the processors,
//! the asking thread does not wait for it: a job that was not begun is taken back, and one that takes
//! too long is abandoned.

use std::hint::spin_loop;
use std::mem::{forget, take};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{
    Receiver, RecvError, RecvTimeoutError, Sender, SyncSender, TryRecvError, channel, sync_channel,
};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::bytes::processors::{Asker, has_processors};

/// How long a thread polls for the next job or answer before it sleeps. Between two calls of a pull
/// Python takes 20 to 100 us. To sleep in that time would cost more, because the host takes an idle
/// virtual processor away, and takes about as long to give it back.
const SPIN: Duration = Duration::from_micros(200);
const SPINS: usize = 64;

/// The result of a job, and the job itself, which must be dropped by the thread that made it.
struct Answer<J, A> {
    done: thread::Result<A>,
    job: J,
}

/// A job that was not begun yet. Whoever begins it, or takes it back, removes it from here.
type Slot<J> = Arc<Mutex<Option<J>>>;
type Asked<J, A> = (Asker, Slot<J>, SyncSender<Answer<J, A>>);

/// The second thread. It ends when this is dropped.
pub struct Second<J, A> {
    /// None only while this is dropped.
    jobs: Option<Sender<Asked<J, A>>>,
    /// Whether the thread sleeps, or has not started yet.
    sleeps: Arc<AtomicBool>,
    /// The process that has the thread. A forked child does not.
    process: u32,
}

/// A job that was given to the second thread. Dropping this waits for the thread if it has begun the
/// job, because the job may refer to things of the asking thread.
pub struct Pending<J, A> {
    slot: Slot<J>,
    /// None when nothing is left to wait for.
    answer: Option<Receiver<Answer<J, A>>>,
    process: u32,
}

/// What became of a job.
pub enum Outcome<J, A> {
    Done(A, J),
    /// It was not begun.
    NotBegun(J),
    /// The thread is still working on it.
    Late(Pending<J, A>),
    /// The thread does not exist any more.
    Gone,
}

impl<J: Send + 'static, A: Send + 'static> Second<J, A> {
    /// Starts the thread; None if the system gives none.
    pub fn begin(name: &str, mut work: impl FnMut(&J) -> A + Send + 'static) -> Option<Self> {
        let (jobs, asked) = channel::<Asked<J, A>>();
        let sleeps = Arc::new(AtomicBool::new(true));
        let own = Arc::clone(&sleeps);
        let do_all = move || {
            while let Ok((asker, slot, reply)) = next(&asked, &own) {
                asker.leave();
                let Some(job) = taken(&slot) else { continue };
                let done = catch_unwind(AssertUnwindSafe(|| work(&job)));
                // The receiver exists until it has the answer.
                let _ = reply.send(Answer { done, job });
            }
        };
        thread::Builder::new().name(name.to_owned()).spawn(do_all).ok()?;
        Some(Second { jobs: Some(jobs), sleeps, process: process::id() })
    }

    /// Gives the thread a job; None if the thread does not exist (any more).
    pub fn ask(&self, job: J) -> Option<Pending<J, A>> {
        let slot = Arc::new(Mutex::new(Some(job)));
        let (reply, answer) = sync_channel(1);
        let jobs = self.jobs.as_ref().filter(|_| self.process == process::id())?;
        let (asker, sleeps) = (Asker::here(), self.sleeps.load(Ordering::Acquire));
        jobs.send((asker, Arc::clone(&slot), reply)).ok()?;
        if sleeps {
            asker.make_way();
        }
        Some(Pending { slot, answer: Some(answer), process: self.process })
    }
}

impl<J, A> Drop for Second<J, A> {
    fn drop(&mut self) {
        if self.process != process::id() {
            // Dropping the sender could wait for ever, if the thread was using the channel at the fork.
            forget(self.jobs.take());
        }
    }
}

impl<J, A> Pending<J, A> {
    /// Takes the job back if it was not begun; else waits for it, at most for `patience`. A panic of
    /// the job continues here.
    pub fn end(mut self, patience: Duration) -> Outcome<J, A> {
        if let Some(job) = taken(&self.slot) {
            self.answer = None;
            return Outcome::NotBegun(job);
        }
        let Some(answer) = &self.answer else { return Outcome::Gone };
        let ended = soon(answer, patience);
        if matches!(ended, Err(RecvTimeoutError::Timeout)) {
            return Outcome::Late(self);
        }
        self.answer = None;
        match ended {
            Ok(Answer { done: Ok(done), job }) => Outcome::Done(done, job),
            Ok(Answer { done: Err(cause), job }) => {
                drop(job);
                resume_unwind(cause)
            }
            Err(_) => Outcome::Gone,
        }
    }

    /// Call this from time to time for an abandoned job. None when the thread has ended it.
    pub fn left(mut self) -> Option<Self> {
        let answer = self.answer.as_ref().filter(|_| self.process == process::id());
        if answer.is_some_and(|one| !matches!(one.try_recv(), Err(TryRecvError::Empty))) {
            self.answer = None;
            return None;
        }
        Some(self)
    }
}

impl<J, A> Drop for Pending<J, A> {
    fn drop(&mut self) {
        let Some(answer) = self.answer.take() else { return };
        if self.process != process::id() {
            forget(answer);
        } else if taken(&self.slot).is_none() {
            let _ = answer.recv();
        }
    }
}

/// When the second thread was not ready in time, others probably need the processors. Then at most so
/// many calls do all by themselves. After the first such call it is none, because waking takes time.
const ALONE: usize = 8;

/// A second thread that is started when it is first needed, and whether to ask it.
pub struct Helper<J, A> {
    name: &'static str,
    second: Option<Second<J, A>>,
    /// Jobs that the thread is still working on, and for which their call did not wait. The lock is
    /// needed only because Python's objects are shared between threads.
    late: Mutex<Vec<Pending<J, A>>>,
    /// How many calls do not ask, and how many will not after the next time that it is not ready.
    alone: usize,
    next_alone: usize,
}

impl<J: Send + 'static, A: Send + 'static> Helper<J, A> {
    pub fn new(name: &'static str) -> Self {
        Helper { name, second: None, late: Mutex::default(), alone: 0, next_alone: 0 }
    }

    /// Call this once for each call that would ask. Whether it may.
    pub fn may_ask(&mut self) -> bool {
        let late = self.late.get_mut().unwrap_or_else(PoisonError::into_inner);
        *late = take(late).into_iter().filter_map(Pending::left).collect();
        if self.alone > 0 {
            self.alone -= 1;
            return false;
        }
        late.is_empty() && has_processors()
    }

    /// Gives the thread a job. `work` is what it does, if it must be started. None if there is no
    /// thread.
    pub fn ask<W>(&mut self, job: J, work: impl FnOnce() -> W) -> Option<Pending<J, A>>
    where
        W: FnMut(&J) -> A + Send + 'static,
    {
        if self.second.is_none() {
            self.second = Second::begin(self.name, work());
        }
        self.second.as_ref()?.ask(job)
    }

    /// Call this with what became of a job. Returns the result and the job, if the thread has done it.
    pub fn done(&mut self, outcome: Outcome<J, A>) -> Option<(A, J)> {
        match outcome {
            Outcome::Done(done, job) => return Some((done, job)),
            Outcome::Late(pending) => self.keep(pending),
            Outcome::NotBegun(_) | Outcome::Gone => {}
        }
        None
    }

    /// Call this at the end of each call that has asked: whether the thread has done a job in time.
    pub fn was_ready(&mut self, is_ready: bool) {
        if is_ready {
            self.next_alone = 0;
            return;
        }
        self.alone = self.next_alone;
        self.next_alone = (2 * self.alone + 1).min(ALONE);
    }

    /// Call this for a job whose result is not wanted any more. Does not wait for it.
    pub fn leave(&mut self, pending: Pending<J, A>) {
        if let Outcome::Late(pending) = pending.end(Duration::ZERO) {
            self.keep(pending);
        }
    }

    fn keep(&mut self, pending: Pending<J, A>) {
        self.late.get_mut().unwrap_or_else(PoisonError::into_inner).push(pending);
    }
}

fn taken<J>(slot: &Slot<J>) -> Option<J> {
    slot.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// The next job, without a time limit.
fn next<T>(asked: &Receiver<T>, sleeps: &AtomicBool) -> Result<T, RecvError> {
    sleeps.store(false, Ordering::Release);
    match soon(asked, SPIN) {
        Ok(next) => Ok(next),
        Err(RecvTimeoutError::Disconnected) => Err(RecvError),
        Err(RecvTimeoutError::Timeout) => {
            sleeps.store(true, Ordering::Release);
            asked.recv()
        }
    }
}

/// What is received next, at most after `patience`. Polls first, and then sleeps.
fn soon<T>(receiver: &Receiver<T>, patience: Duration) -> Result<T, RecvTimeoutError> {
    let since = Instant::now();
    let spin = patience.min(SPIN);
    while since.elapsed() < spin {
        match receiver.try_recv() {
            Ok(sent) => return Ok(sent),
            Err(TryRecvError::Disconnected) => return Err(RecvTimeoutError::Disconnected),
            Err(TryRecvError::Empty) => (0..SPINS).for_each(|_| spin_loop()),
        }
    }
    receiver.recv_timeout(patience - spin)
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    use super::{Outcome, Pending, Second};

    const LONG: Duration = Duration::from_secs(600);

    /// A thread that reports when it begins a job, and ends the job when it is allowed to.
    struct Gated {
        second: Second<i32, i32>,
        begun: Receiver<i32>,
        may_end: Sender<()>,
    }

    impl Gated {
        /// A job that the thread has begun.
        fn begun(&self, job: i32) -> Pending<i32, i32> {
            let pending = self.second.ask(job).expect("a thread");
            assert_eq!(self.begun.recv(), Ok(job));
            pending
        }

        /// Lets the job end that was begun.
        fn end(&self) {
            self.may_end.send(()).expect("a thread");
        }
    }

    fn gated() -> Gated {
        let (begin, begun) = channel();
        let (may_end, gate) = channel();
        let second = Second::begin("gated", move |job: &i32| {
            let _ = begin.send(*job);
            let _ = gate.recv();
            assert!(*job != 13, "an unlucky job");
            job + 100
        });
        Gated { second: second.expect("a thread"), begun, may_end }
    }

    #[test]
    fn a_job_is_done_taken_back_or_left() {
        let gated = gated();
        let first = gated.begun(1);
        let next = gated.second.ask(2).expect("a thread");
        assert!(matches!(next.end(LONG), Outcome::NotBegun(2)));
        let Outcome::Late(late) = first.end(Duration::ZERO) else { panic!("the gate is closed") };
        let mut late = Some(late.left().expect("it is at it"));
        // Dropping a job that was not begun does not wait.
        drop(gated.second.ask(3));
        gated.end();
        while late.is_some() {
            late = late.take().and_then(Pending::left);
        }
        let fourth = gated.begun(4);
        gated.end();
        assert!(matches!(fourth.end(LONG), Outcome::Done(104, 4)));
    }

    #[test]
    fn who_lets_go_of_a_job_that_was_begun_waits_for_it() {
        let gated = gated();
        let pending = gated.begun(1);
        gated.end();
        drop(pending);
        let next = gated.begun(2);
        let Gated { second, may_end, .. } = gated;
        drop(second);
        may_end.send(()).expect("a thread");
        assert!(matches!(next.end(LONG), Outcome::Done(102, 2)));
    }

    #[test]
    fn a_panic_goes_on_where_the_job_was_asked_for() {
        let gated = gated();
        let pending = gated.begun(13);
        gated.end();
        let ended = catch_unwind(AssertUnwindSafe(|| pending.end(LONG)));
        assert!(ended.is_err_and(|cause| cause.downcast_ref::<&str>() == Some(&"an unlucky job")));
        let next = gated.begun(1);
        gated.end();
        assert!(matches!(next.end(LONG), Outcome::Done(101, 1)));
    }
}
