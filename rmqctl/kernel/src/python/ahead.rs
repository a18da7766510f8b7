//! A second thread that makes the lines of a pull which come next, while the first makes those before
//! them. It waits from one call to the next: to begin a thread takes as long as a hundred lines.

use std::hint::spin_loop;
use std::mem::forget;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process;
use std::sync::mpsc::{
    Receiver, RecvError, Sender, SyncSender, TryRecvError, channel, sync_channel,
};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use pyo3::buffer::PyBuffer;

use crate::bytes::memory::take;
use crate::lines::pull::{Limits, Part, Pulled, Units, pull};
use crate::lines::rows::Lines;
use crate::python::bytes_of;

/// How long a thread looks for the next thing itself, before it has the system wake it: that takes as
/// long on a virtual machine.
const SPIN: Duration = Duration::from_micros(50);
const SPINS: usize = 64;

/// What a pull asks of the second thread: as `Lines.pull` does.
pub struct Job {
    pub units: Vec<u8>,
    pub first: i64,
    pub file_end: i64,
    pub queue_end: i64,
    /// Held by this thread as long as it looks there.
    pub buffer: PyBuffer<u8>,
    pub places: Range<usize>,
    pub file_from_offset: i64,
    pub limits: Limits,
    pub most: usize,
    pub room: usize,
}

/// What came of it, with the buffer, which only who has the interpreter's lock lets go of.
struct Answer {
    pulled: thread::Result<(Pulled, usize)>,
    buffer: PyBuffer<u8>,
}

/// A job that nobody has begun; who begins it takes it.
type Slot = Arc<Mutex<Option<Job>>>;

/// The second thread. It ends when this is let go of.
pub struct Ahead {
    /// Always there before the end.
    jobs: Option<Sender<(Slot, SyncSender<Answer>)>>,
    /// The process that has the thread: one that is forked has none.
    process: u32,
}

/// What the second thread is at, or will be.
pub struct Pending {
    slot: Slot,
    answer: Receiver<Answer>,
}

/// What became of a job; what it held is let go of with the interpreter's lock.
pub enum Outcome {
    /// Lines, of how many the body is not what was stored, and the buffer.
    Made(Pulled, usize, PyBuffer<u8>),
    /// Nobody has begun it: others want the processors.
    NotBegun(Job),
    /// The thread is gone.
    Gone,
}

impl Ahead {
    /// None where the system gives no thread.
    pub fn begin(lines: Lines) -> Option<Self> {
        let (jobs, asked) = channel::<(Slot, SyncSender<Answer>)>();
        let work = move || {
            let mut lines = lines;
            while let Ok((slot, reply)) = soon(&asked) {
                let Some(job) = taken(&slot) else { continue };
                let pulled = catch_unwind(AssertUnwindSafe(|| lines_of(&mut lines, &job)));
                // Who has asked waits.
                let _ = reply.send(Answer { pulled, buffer: job.buffer });
            }
        };
        thread::Builder::new().name("lines".to_owned()).spawn(work).ok()?;
        Some(Ahead { jobs: Some(jobs), process: process::id() })
    }

    /// None where there is no such thread.
    pub fn ask(&self, job: Job) -> Option<Pending> {
        let slot = Arc::new(Mutex::new(Some(job)));
        let (reply, answer) = sync_channel(1);
        let jobs = self.jobs.as_ref().filter(|_| self.process == process::id())?;
        jobs.send((Arc::clone(&slot), reply)).ok()?;
        Some(Pending { slot, answer })
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        if self.process != process::id() {
            // The thread may have been at it when the process was forked, which would be waited for.
            forget(self.jobs.take());
        }
    }
}

impl Pending {
    /// Takes the job back if it was not begun, else waits for it. A panic goes on here.
    pub fn end(self) -> Outcome {
        if let Some(job) = taken(&self.slot) {
            return Outcome::NotBegun(job);
        }
        match soon(&self.answer) {
            Ok(Answer { pulled: Ok((pulled, mismatches)), buffer }) => {
                Outcome::Made(pulled, mismatches, buffer)
            }
            Ok(Answer { pulled: Err(cause), .. }) => resume_unwind(cause),
            Err(RecvError) => Outcome::Gone,
        }
    }
}

fn taken(slot: &Slot) -> Option<Job> {
    slot.lock().unwrap_or_else(PoisonError::into_inner).take()
}

fn lines_of(lines: &mut Lines, job: &Job) -> (Pulled, usize) {
    let units = Units {
        stored: &job.units,
        first: job.first,
        file_end: job.file_end,
        queue_end: job.queue_end,
    };
    let (data, file_from_offset) = (bytes_of(&job.buffer), job.file_from_offset);
    let part = Part { data, places: job.places.clone(), file_from_offset };
    lines.mismatches = 0;
    let out = take(job.room);
    let pulled = pull(lines, out, units, &part, job.limits, None, (job.most, job.room));
    (pulled, lines.mismatches)
}

/// What is sent next.
fn soon<T>(receiver: &Receiver<T>) -> Result<T, RecvError> {
    let since = Instant::now();
    while since.elapsed() < SPIN {
        match receiver.try_recv() {
            Ok(sent) => return Ok(sent),
            Err(TryRecvError::Disconnected) => return Err(RecvError),
            Err(TryRecvError::Empty) => (0..SPINS).for_each(|_| spin_loop()),
        }
    }
    receiver.recv()
}
