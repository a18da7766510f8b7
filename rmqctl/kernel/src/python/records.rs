//! Makes Python objects of records: the tuple that `read_entry` (`rmqctl/engine/record/record.py`)
//! returns, and rows (`rmqctl/operations/look/rows.py`).
//!
//! Neither is made of a record that is not plain (see `lines/rows.rs`): then Python reads it.

use std::net::Ipv4Addr;
use std::sync::Mutex;

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyInt, PyList, PyString, PyTuple, PyType};

use crate::layouts::{
    INDEX_TAG_TYPE, KEY_SEPARATOR, PROPERTY_KEYS, PROPERTY_TAGS, PROPERTY_UNIQ_KEY,
};
use crate::lines::columns::{COLUMNS, Column};
use crate::lines::pull::{self, Limits, Part, Units};
use crate::python::{bytes_of, guarded};
use crate::record::entry::{self, Found, Record, i32_at, i64_at, prefix_of};
use crate::record::pairs::{Pairs, tags_code};
use crate::record::text::push_hex;

const UPPER: &[u8; 16] = b"0123456789ABCDEF";
/// `tuple.__new__`, which makes a named tuple.
static TUPLE_NEW: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// The record at `position` of a file, as a tuple of `class`. None if there is no whole record before
/// `readable`, behind which nothing is read.
#[pyfunction]
pub fn record_at<'py>(
    py: Python<'py>,
    class: &Bound<'py, PyType>,
    buffer: PyBuffer<u8>,
    position: usize,
    readable: usize,
    file_from_offset: i64,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let data = bytes_of(&buffer);
    let found = guarded(|| Ok(found_at(data, position, readable, file_from_offset)))?;
    found.map(|record| tuple_of(py, class, data, position, &record)).transpose()
}

/// The records of one answer to a pull without a filter, as tuples of `class`, and the queue offset of
/// the next answer; None where something is odd. `queue` has the queue offset of the first of `units`,
/// and the one before which the answer ends. The other parameters are those of `Lines.pull`.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "a queue's, a log's and a pull's")]
pub fn pull_records<'py>(
    py: Python<'py>,
    class: &Bound<'py, PyType>,
    units: PyBuffer<u8>,
    queue: (i64, i64),
    buffer: PyBuffer<u8>,
    places: (usize, usize),
    file_from_offset: i64,
    limits: (usize, usize, i64, (i64, usize), (i64, usize), i64),
) -> PyResult<Option<(Bound<'py, PyList>, i64)>> {
    let (stored, data) = (bytes_of(&units), bytes_of(&buffer));
    let (messages, units, in_memory, memory, disk, log_end) = limits;
    let limits = Limits { messages, units, in_memory, memory, disk, log_end };
    let units = Units { stored, first: queue.0, file_end: queue.1, queue_end: queue.1 };
    let part = Part { data, places: places.0..places.1, file_from_offset };
    let Some((found, next)) = guarded(|| Ok(pull::records(units, &part, limits)))? else {
        return Ok(None);
    };
    let records = PyList::empty(py);
    for (position, record) in found {
        records.append(tuple_of(py, class, data, position, &record)?)?;
    }
    Ok(Some((records, next)))
}

pub fn found_at(data: &[u8], position: usize, readable: usize, from: i64) -> Option<Record> {
    let data = &data[..readable.min(data.len())];
    match entry::read(data, position, data.len(), from) {
        Found::Record(record) => Some(record),
        _ => None,
    }
}

fn tuple_of<'py>(
    py: Python<'py>,
    class: &Bound<'py, PyType>,
    data: &[u8],
    position: usize,
    record: &Record,
) -> PyResult<Bound<'py, PyAny>> {
    let prefix = prefix_of(record.sys_flag);
    let bytes = &data[position..position + record.total_size];
    let short = |at: usize| int(py, i64::from(i32_at(bytes, at)));
    let long = |at: usize| int(py, i64_at(bytes, at));
    let text = |start: usize, end: usize| PyBytes::new(py, &bytes[start..end]).into_any();
    let topic = record.topic_position - position;
    let properties = record.properties_position - position;
    let fields: [Bound<'py, PyAny>; 20] = [
        long(prefix.physical_offset),
        int(py, record.total_size as i64),
        int(py, i64::from(i32_at(bytes, prefix.magic_code) as u32)),
        int(py, i64::from(record.body_crc)),
        int(py, i64::from(record.queue_id)),
        short(prefix.flag),
        int(py, record.queue_offset),
        int(py, i64::from(record.sys_flag)),
        long(prefix.born_timestamp),
        text(prefix.born_address, prefix.born_port),
        int(py, i64::from(record.born_port)),
        int(py, record.store_timestamp),
        text(prefix.store_address, prefix.store_port),
        int(py, i64::from(record.store_port)),
        short(prefix.reconsume_times),
        long(prefix.prepared_transaction_offset),
        int(py, record.body_position as i64),
        int(py, record.body_length as i64),
        text(topic, topic + record.topic_length),
        text(properties, properties + record.properties_length),
    ];
    let new = TUPLE_NEW
        .get_or_try_init(py, || py.get_type::<PyTuple>().getattr("__new__").map(Bound::unbind))?;
    new.bind(py).call1((class, PyTuple::new(py, fields)?))
}

fn int(py: Python<'_>, number: i64) -> Bound<'_, PyAny> {
    PyInt::new(py, number).into_any()
}

/// The text that was made of the last host or topic. The next one is mostly the same.
#[derive(Default)]
struct Last {
    bytes: Vec<u8>,
    text: Option<Py<PyString>>,
}

/// The names of the last properties, and a dict with these names. The next record mostly has the same.
#[derive(Default)]
struct LastNames {
    names: Vec<(String, Py<PyString>)>,
    dict: Option<Py<PyDict>>,
}

/// Caches of texts that the next record may have, too.
#[derive(Default)]
struct Texts {
    topic: Last,
    hosts: [Last; 2],
    names: LastNames,
}

/// Makes rows of records, without bodies.
#[pyclass(frozen)]
pub struct Rows {
    /// A row with all of its names, and the values that are always the same. A copy of it already has
    /// its final size, while a dict that grows is reallocated three times.
    empty: Py<PyDict>,
    cells: Vec<(Py<PyString>, Column)>,
    texts: Mutex<Texts>,
}

/// The parts of a record from which columns are made.
struct Parts<'a> {
    record: &'a Record,
    /// The bytes of the whole record.
    bytes: &'a [u8],
    topic: &'a [u8],
    properties: &'a str,
    pairs: Pairs,
    tags_code: i64,
}

/// The record to which an item of a key leads: its row, or a record with another topic or other keys.
pub enum OfKey<'py> {
    Row(Bound<'py, PyDict>),
    Other,
}

#[pymethods]
impl Rows {
    /// Rows with these cells: a name, and its value if that is always the same; None: a column of the
    /// record.
    #[new]
    fn new(
        py: Python<'_>,
        cells: Vec<(Bound<'_, PyString>, Option<Bound<'_, PyAny>>)>,
    ) -> PyResult<Self> {
        let empty = PyDict::new(py);
        let mut own = Vec::new();
        for (name, always) in cells {
            empty.set_item(&name, &always)?;
            if always.is_none() {
                let column = column_of(name.to_cow()?.as_ref())?;
                own.push((name.unbind(), column));
            }
        }
        Ok(Rows { empty: empty.unbind(), cells: own, texts: Mutex::default() })
    }
}

impl Rows {
    /// The row of the record at a physical offset in a `MappedFile` of the log, if it has this topic
    /// and key. None if it is not plain, was stored before 1970, or may be in a hole of the file
    /// (`rmqctl/engine/files/holes.py`).
    pub fn of_key<'py>(
        &self,
        py: Python<'py>,
        mapped: &Bound<'py, PyAny>,
        offset: i64,
        topic: &str,
        key: &str,
    ) -> PyResult<Option<OfKey<'py>>> {
        let file_from_offset: i64 = mapped.getattr(intern!(py, "file_from_offset"))?.extract()?;
        let place = offset.checked_sub(file_from_offset);
        let Some(position) = place.and_then(|place| usize::try_from(place).ok()) else {
            return Ok(None);
        };
        mapped.call_method1(intern!(py, "load_entry"), (position,))?;
        let (low, high): (usize, usize) = mapped.getattr(intern!(py, "whole"))?.extract()?;
        if position < low {
            return Ok(None);
        }
        let size: usize = mapped.getattr(intern!(py, "size"))?.extract()?;
        let buffer = PyBuffer::<u8>::get(&mapped.getattr(intern!(py, "buffer"))?)?;
        let (data, readable) = (bytes_of(&buffer), high.min(size));
        let found = guarded(|| Ok(found_at(data, position, readable, file_from_offset)))?;
        let Some(record) = found.filter(|record| record.store_timestamp >= 0) else {
            return Ok(None);
        };
        let Some(parts) = parts_of(data, position, &record) else { return Ok(None) };
        if parts.topic != topic.as_bytes() || !has_key(&parts.pairs, parts.properties, key) {
            return Ok(Some(OfKey::Other));
        }
        Ok(self.row(py, &parts)?.map(OfKey::Row))
    }

    /// The row of a record; None if it is not plain.
    fn row<'py>(&self, py: Python<'py>, parts: &Parts<'_>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let row = self.empty.bind(py).copy()?;
        // If another thread uses the caches, or this one does further up the stack, nobody waits.
        let mut own = Texts::default();
        let mut kept = self.texts.try_lock();
        let texts = kept.as_deref_mut().unwrap_or(&mut own);
        for (name, column) in &self.cells {
            let Some(value) = value_of(py, *column, parts, texts)? else { return Ok(None) };
            row.set_item(name.bind(py), value)?;
        }
        Ok(Some(row))
    }
}

fn column_of(name: &str) -> PyResult<Column> {
    let known = COLUMNS.iter().find(|(column, _)| *column == name);
    known
        .map(|(_, column)| *column)
        .ok_or_else(|| PyValueError::new_err(format!("no column {name:?}")))
}

fn parts_of<'a>(data: &'a [u8], position: usize, record: &'a Record) -> Option<Parts<'a>> {
    let start = record.properties_position;
    let properties = &data[start..start + record.properties_length];
    let mut pairs = Pairs::default();
    if !pairs.read(properties) {
        return None;
    }
    let tags_code = tags_code(pairs.of(properties));
    let properties = std::str::from_utf8(properties).ok()?;
    let bytes = &data[position..position + record.total_size];
    let topic = &data[record.topic_position..record.topic_position + record.topic_length];
    std::str::from_utf8(topic).ok()?;
    Some(Parts { record, bytes, topic, properties, pairs, tags_code })
}

/// Whether a record has this topic, and is indexed under this key (`every_key` of
/// `rmqctl/engine/dispatch/rules.py`). None if its properties are not plain.
pub fn is_of_key(data: &[u8], record: &Record, topic: &str, key: &str) -> Option<bool> {
    let start = record.properties_position;
    let properties = &data[start..start + record.properties_length];
    let mut pairs = Pairs::default();
    if !pairs.read(properties) {
        return None;
    }
    let properties = std::str::from_utf8(properties).ok()?;
    let own = &data[record.topic_position..record.topic_position + record.topic_length];
    Some(own == topic.as_bytes() && has_key(&pairs, properties, key))
}

fn has_key(pairs: &Pairs, properties: &str, key: &str) -> bool {
    let value = |wanted: &[u8]| {
        let mut pairs = pairs.of_text(properties);
        pairs.find(|(name, _)| name.as_bytes() == wanted).map(|(_, value)| value)
    };
    let separator = char::from(KEY_SEPARATOR);
    let of_tags = || key.strip_prefix(char::from(INDEX_TAG_TYPE))?.strip_prefix('#');
    !key.is_empty()
        && (value(PROPERTY_UNIQ_KEY) == Some(key)
            || value(PROPERTY_KEYS).is_some_and(|keys| keys.split(separator).any(|one| one == key))
            || of_tags().is_some_and(|tags| !tags.is_empty() && value(PROPERTY_TAGS) == Some(tags)))
}

/// The value of a column. None if it is not plain, or if rows without bodies do not have the column.
fn value_of<'py>(
    py: Python<'py>,
    column: Column,
    parts: &Parts<'_>,
    texts: &mut Texts,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let (record, bytes) = (parts.record, parts.bytes);
    let prefix = prefix_of(record.sys_flag);
    let short = |at: usize| int(py, i64::from(i32_at(bytes, at)));
    let long = |at: usize| int(py, i64_at(bytes, at));
    Ok(Some(match column {
        Column::PhysicalOffset => long(prefix.physical_offset),
        Column::TotalSize => int(py, record.total_size as i64),
        Column::Topic => return Ok(kept(py, &mut texts.topic, parts.topic, as_text)),
        Column::QueueId => int(py, i64::from(record.queue_id)),
        Column::QueueOffset => int(py, record.queue_offset),
        Column::Flag => short(prefix.flag),
        Column::SysFlag => int(py, i64::from(record.sys_flag)),
        Column::BodyCrc => int(py, i64::from(record.body_crc)),
        Column::BornTimestamp => long(prefix.born_timestamp),
        Column::StoreTimestamp => int(py, record.store_timestamp),
        Column::BornHost => {
            let host = &bytes[prefix.born_address..prefix.born_port + 4];
            return Ok(kept(py, &mut texts.hosts[0], host, host_text));
        }
        Column::StoreHost => {
            let host = &bytes[prefix.store_address..prefix.store_port + 4];
            return Ok(kept(py, &mut texts.hosts[1], host, host_text));
        }
        Column::ReconsumeTimes => short(prefix.reconsume_times),
        Column::PreparedTransactionOffset => long(prefix.prepared_transaction_offset),
        Column::BodyLength => int(py, record.body_length as i64),
        Column::TagsCode => int(py, parts.tags_code),
        Column::MsgId => {
            let mut digits = Vec::with_capacity(56);
            push_hex(&mut digits, &bytes[prefix.store_address..prefix.store_port + 4], UPPER);
            push_hex(
                &mut digits,
                &bytes[prefix.physical_offset..prefix.physical_offset + 8],
                UPPER,
            );
            let Some(text) = as_text(&digits) else { return Ok(None) };
            PyString::new(py, &text).into_any()
        }
        Column::Properties => properties_of(py, &mut texts.names, parts)?.into_any(),
        Column::BornTime
        | Column::StoreTime
        | Column::Body
        | Column::BodyEncoding
        | Column::Status => return Ok(None),
    }))
}

/// The properties of a record. If it has the names of the last one, a copy of that dict gets its
/// values.
fn properties_of<'py>(
    py: Python<'py>,
    last: &mut LastNames,
    parts: &Parts<'_>,
) -> PyResult<Bound<'py, PyDict>> {
    let pairs = || parts.pairs.of_text(parts.properties);
    let names = last.names.iter().map(|(name, _)| name.as_str());
    let dict = match &last.dict {
        Some(dict) if names.eq(pairs().map(|(name, _)| name)) => dict.bind(py).copy()?,
        _ => {
            let (dict, mut names) = (PyDict::new(py), Vec::new());
            for (name, _) in pairs() {
                let own = PyString::new(py, name);
                dict.set_item(&own, py.None())?;
                names.push((name.to_owned(), own.unbind()));
            }
            *last = LastNames { names, dict: Some(dict.copy()?.unbind()) };
            dict
        }
    };
    for ((_, name), (_, value)) in last.names.iter().zip(pairs()) {
        dict.set_item(name.bind(py), value)?;
    }
    Ok(dict)
}

/// The text of some bytes. It is made only if they differ from the last ones.
fn kept<'py>(
    py: Python<'py>,
    last: &mut Last,
    bytes: &[u8],
    make: impl Fn(&[u8]) -> Option<String>,
) -> Option<Bound<'py, PyAny>> {
    if last.text.is_none() || *last.bytes != *bytes {
        *last =
            Last { bytes: bytes.to_vec(), text: Some(PyString::new(py, &make(bytes)?).unbind()) };
    }
    last.text.as_ref().map(|text| text.bind(py).clone().into_any())
}

fn as_text(bytes: &[u8]) -> Option<String> {
    std::str::from_utf8(bytes).ok().map(str::to_owned)
}

/// `address:port` of a stored host. None for IPv6, which versions of Python write differently.
fn host_text(host: &[u8]) -> Option<String> {
    let (address, port) = host.split_at(host.len() - 4);
    let address = <[u8; 4]>::try_from(address).ok()?;
    Some(format!("{}:{}", Ipv4Addr::from(address), i32_at(port, 0)))
}
