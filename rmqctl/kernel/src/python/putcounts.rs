//! The Python interface for counting puts.

use std::collections::HashMap;

use pyo3::prelude::*;

/// Counts puts until they are taken: messages and bytes by topic, puts by classes of how long they
/// took, and the longest (ms).
#[pyclass]
pub struct PutCounts {
    numbers: HashMap<String, usize>,
    topics: Vec<(String, i64, i64)>,
    ends: Vec<i64>,
    classes: Vec<i64>,
    longest: f64,
}

#[pymethods]
impl PutCounts {
    /// `ends` are the upper limits of the classes of times (ms), except the last class.
    #[new]
    fn new(ends: Vec<i64>) -> Self {
        let classes = vec![0; ends.len() + 1];
        PutCounts { numbers: HashMap::new(), topics: Vec::new(), ends, classes, longest: 0.0 }
    }

    /// What was counted since the last call: `(topic, messages, bytes)`, puts by class, and the longest
    /// time (ms).
    fn take(&mut self) -> (Vec<(String, i64, i64)>, Vec<i64>, f64) {
        let put = self.topics.iter().filter(|(_, messages, _)| *messages > 0).cloned().collect();
        for (_, messages, bytes) in &mut self.topics {
            (*messages, *bytes) = (0, 0);
        }
        let empty = vec![0; self.classes.len()];
        let longest = std::mem::take(&mut self.longest);
        (put, std::mem::replace(&mut self.classes, empty), longest)
    }
}

impl PutCounts {
    pub fn number_of(&mut self, topic: &str) -> usize {
        if let Some(number) = self.numbers.get(topic) {
            return *number;
        }
        self.topics.push((topic.to_owned(), 0, 0));
        self.numbers.insert(topic.to_owned(), self.topics.len() - 1);
        self.topics.len() - 1
    }

    pub fn stored(&mut self, number: usize, size: usize) {
        let (_, messages, bytes) = &mut self.topics[number];
        *messages += 1;
        *bytes += size as i64;
    }

    pub fn put_ended(&mut self, elapsed: f64) {
        let millis = elapsed as i64;
        let class = self.ends.iter().position(|end| millis <= 0 || millis < *end);
        self.classes[class.unwrap_or(self.ends.len())] += 1;
        self.longest = self.longest.max(elapsed);
    }
}
