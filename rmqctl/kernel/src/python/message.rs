//! Reads messages that are Python objects (`MessageExtBrokerInner`, `PlainMessage`), if they are plain.
//!
//! Only objects of exactly these classes are read, because reading their fields runs no Python code. A
//! message with a field of another type, or a value out of range, is not taken: Python deals with it.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString, PyTuple, PyType};

use crate::layouts::{PROPERTY_DELAY_TIME_LEVEL, PROPERTY_INNER_MULTI_DISPATCH};
use crate::put::message::{Entry, Host, Message, Origin, TAKEN_FLAGS, Texts};

/// The names of the fields of a `MessageExtBrokerInner` that are read.
const NAMES: [&str; 12] = [
    "topic",
    "body",
    "queue_id",
    "flag",
    "sys_flag",
    "properties",
    "properties_bytes",
    "born_timestamp",
    "born_host",
    "store_host",
    "reconsume_times",
    "prepared_transaction_offset",
];

/// The values of these fields.
pub type Values<'a, 'py> = [&'a Bound<'py, PyAny>; NAMES.len()];

/// Reads messages of two classes. It caches the last hosts.
pub struct Reader {
    full: Py<PyType>,
    plain: Py<PyType>,
    names: [Py<PyString>; NAMES.len()],
    /// The names of properties with which a message is not plain.
    special: [Py<PyString>; 2],
    zero: Py<PyAny>,
    born: Seen,
    store: Seen,
}

/// The last host, which most messages share, as a Python object and parsed. Holding the object ensures
/// that its identity is not reused.
#[derive(Default)]
struct Seen(Option<(Py<PyAny>, Host)>);

/// The fields of a message. The Python objects are held while their bytes are used.
pub struct Fields<'py> {
    topic: Bound<'py, PyString>,
    queue_id: i32,
    body: Bound<'py, PyBytes>,
    properties: Properties<'py>,
    /// The flag, the sys flag, the born time (ms), the reconsume times and the offset of the prepared
    /// message.
    origin: (i32, i32, i64, i32, i64),
    born_host: Host,
    pub store_host: Host,
}

enum Properties<'py> {
    Pairs(Vec<(Bound<'py, PyString>, Bound<'py, PyString>)>),
    Stored(Bound<'py, PyBytes>),
}

impl Reader {
    /// `classes` are `MessageExtBrokerInner` and `PlainMessage`.
    pub fn new(py: Python<'_>, classes: (Py<PyType>, Py<PyType>)) -> PyResult<Self> {
        let (full, plain) = classes;
        let names = NAMES.map(|name| PyString::intern(py, name).unbind());
        let zero = 0i32.into_pyobject(py)?.into_any().unbind();
        let special = [PROPERTY_DELAY_TIME_LEVEL, PROPERTY_INNER_MULTI_DISPATCH];
        let special = special.map(|name| PyString::intern(py, &String::from_utf8_lossy(name)));
        let special = special.map(Bound::unbind);
        let (born, store) = (Seen::default(), Seen::default());
        Ok(Reader { full, plain, names, special, zero, born, store })
    }

    /// The fields of a message; None if it is not plain, or not a message at all.
    pub fn read<'py>(&mut self, message: &Bound<'py, PyAny>) -> Option<Fields<'py>> {
        let class = message.get_type();
        if class.is(&self.full) {
            self.read_full(message)
        } else if class.is(&self.plain) {
            self.read_plain(message.cast::<PyTuple>().ok()?)
        } else {
            None
        }
    }

    fn read_full<'py>(&mut self, message: &Bound<'py, PyAny>) -> Option<Fields<'py>> {
        let get = |name: &Py<PyString>| message.getattr(name).ok();
        let [a, b, c, d, e, f, g, h, i, j, k, l] = self.names.each_ref().map(get);
        let values = [a?, b?, c?, d?, e?, f?, g?, h?, i?, j?, k?, l?];
        self.fields(values.each_ref())
    }

    /// The fields of a `MessageExtBrokerInner` with these values, in the order of [`NAMES`]; None if it
    /// is not plain.
    pub fn fields<'py>(&mut self, values: Values<'_, 'py>) -> Option<Fields<'py>> {
        let [topic, body, queue_id, flag, sys_flag, given, stored, born, ..] = values;
        let [.., born_host, store_host, reconsume_times, prepared_transaction_offset] = values;
        let sys_flag = self.int(sys_flag)?;
        if sys_flag & !TAKEN_FLAGS != 0 {
            return None;
        }
        let given = given.cast_exact::<PyDict>().ok()?;
        let properties = if stored.is_none() {
            let mut pairs = Vec::with_capacity(given.len());
            for (name, value) in given.iter() {
                pairs.push((name.cast_into_exact().ok()?, value.cast_into_exact().ok()?));
            }
            Properties::Pairs(pairs)
        } else if self.special.iter().any(|name| given.contains(name).unwrap_or(true)) {
            return None;
        } else {
            Properties::Stored(stored.cast_exact().ok()?.clone())
        };
        Some(Fields {
            topic: topic.cast_exact().ok()?.clone(),
            body: body.cast_exact().ok()?.clone(),
            queue_id: self.int(queue_id)?,
            properties,
            origin: (
                self.int(flag)?,
                sys_flag,
                self.long(born)?,
                self.int(reconsume_times)?,
                self.long(prepared_transaction_offset)?,
            ),
            born_host: self.born.host(born_host)?,
            store_host: self.store.host(store_host)?,
        })
    }

    fn read_plain<'py>(&mut self, message: &Bound<'py, PyTuple>) -> Option<Fields<'py>> {
        // Borrowed items need no reference counting. Only those that are kept get a reference.
        let get = |at: usize| message.get_borrowed_item(at).ok();
        let own = |at: usize| get(at).map(|item| item.to_owned());
        Some(Fields {
            topic: own(0)?.cast_into_exact().ok()?,
            queue_id: self.int(get(1)?.as_any())?,
            body: own(2)?.cast_into_exact().ok()?,
            properties: Properties::Stored(own(3)?.cast_into_exact().ok()?),
            origin: (
                self.int(get(4)?.as_any())?,
                0,
                self.long(get(5)?.as_any())?,
                self.int(get(8)?.as_any())?,
                self.long(get(9)?.as_any())?,
            ),
            born_host: self.born.host(get(6)?.as_any())?,
            store_host: self.store.host(get(7)?.as_any())?,
        })
    }

    /// Most integers of a message are 0, which is always the same object in Python.
    #[inline]
    fn int(&self, value: &Bound<'_, PyAny>) -> Option<i32> {
        if value.is(&self.zero) { Some(0) } else { value.extract().ok() }
    }

    #[inline]
    fn long(&self, value: &Bound<'_, PyAny>) -> Option<i64> {
        if value.is(&self.zero) { Some(0) } else { value.extract().ok() }
    }
}

impl Seen {
    #[inline]
    fn host(&mut self, host: &Bound<'_, PyAny>) -> Option<Host> {
        if let Some((seen, parsed)) = &self.0 {
            if host.is(seen) {
                return Some(*parsed);
            }
        }
        // A tuple of bytes and an int is immutable, so the parsed value stays valid.
        let pair = host.cast_exact::<PyTuple>().ok()?;
        let address = pair.get_item(0).ok()?.cast_into_exact::<PyBytes>().ok()?;
        let address = <[u8; 4]>::try_from(address.as_bytes()).ok()?;
        let parsed = (address, pair.get_item(1).ok()?.extract().ok()?);
        self.0 = Some((host.clone().unbind(), parsed));
        Some(parsed)
    }
}

impl Fields<'_> {
    /// The message; None if a text is not valid Unicode.
    pub fn message(&self) -> Option<Message<'_>> {
        let (flag, sys_flag, born_timestamp, reconsume_times, prepared_transaction_offset) =
            self.origin;
        let origin = Origin {
            flag,
            sys_flag,
            born_timestamp,
            born_host: self.born_host,
            store_host: self.store_host,
            reconsume_times,
            prepared_transaction_offset,
        };
        let properties = match &self.properties {
            Properties::Stored(stored) => Texts::Stored(stored.as_bytes()),
            Properties::Pairs(pairs) => Texts::Entries(
                pairs.iter().map(|(name, value)| entry_of(name, value)).collect::<Option<_>>()?,
            ),
        };
        let (topic, body) = (self.topic.to_str().ok()?, self.body.as_bytes());
        Some(Message { topic, queue_id: self.queue_id, body, properties, origin: Some(origin) })
    }
}

fn entry_of<'a>(
    name: &'a Bound<'_, PyString>,
    value: &'a Bound<'_, PyString>,
) -> Option<Entry<'a>> {
    Some((0, (name.to_str().ok()?, value.to_str().ok()?)))
}

/// A host as Python has it: the bytes of the address, and the port.
pub fn host_of<'py>(py: Python<'py>, host: Host) -> PyResult<Bound<'py, PyTuple>> {
    (PyBytes::new(py, &host.0), host.1).into_pyobject(py)
}

/// The reader of an appender; an error if the appender was not made for messages.
pub fn reader_of(reader: &mut Option<Reader>) -> PyResult<&mut Reader> {
    reader.as_mut().ok_or_else(|| PyValueError::new_err("it knows no class of messages"))
}
