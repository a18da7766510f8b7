"""The compiled module (src/python/mod.rs)."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

INTERFACE: Final[int]
VERSIONS: Final[tuple[tuple[int, int, int, int, int], ...]]
INT_COLUMNS: Final[tuple[str, ...]]
ARROW_COLUMNS: Final[tuple[str, ...]]
LINE_COLUMNS: Final[tuple[str, ...]]
SOURCES: Final[str]

class KernelPanic(RuntimeError): ...

#: A part of a window, without the whole numbers of its rows (``Scanner.fill``).
Taken = tuple[
    int,
    list[bytes],
    int,
    bytearray,
    bytearray,
    bytearray,
    bytearray,
    bytearray,
    bytearray,
    bytearray,
    list[tuple[int, bytes]],
]

class Runs: ...

class Memory:
    def __buffer__(self, flags: int, /) -> memoryview: ...

class SlotBytes:
    def __buffer__(self, flags: int, /) -> memoryview: ...

#: The plain records of a part: its start and end, the thread, new topics, the counts of records and
#: units with the newest store time (ms) and the last record's physical offset, units, and three
#: columns of keys.
PlainPart = tuple[
    tuple[int, int],
    int,
    list[bytes],
    tuple[int, int, int, int],
    Runs,
    Memory,
    Memory,
    Memory,
]

class Scanner:
    def __init__(
        self, *, check: bool, properties: bool, indexes_tags: bool, threads: int
    ) -> None: ...
    def starts(
        self,
        buffer: object,
        position: int,
        limit: int,
        readable: int,
        file_from_offset: int,
        parts: int,
    ) -> list[int]: ...
    def fill(
        self,
        buffer: object,
        starts: list[int],
        limit: int,
        readable: int,
        file_from_offset: int,
        most: int,
    ) -> tuple[int, int, bool, bytearray, list[Taken]]: ...
    def plain(
        self,
        buffer: object,
        descriptor: int,
        starts: list[int],
        limit: int,
        readable: int,
        file_from_offset: int,
        *,
        units: bool,
        keys: bool,
    ) -> list[PlainPart]: ...

class Lines:
    def __init__(
        self,
        form: str,
        cells: Sequence[tuple[str, bytes | None]],
        body: str,
        *,
        decompresses: bool = False,
        checks: bool = False,
        topic: bytes | None = None,
        queue_id: int | None = None,
        since: int | None = None,
        until: int | None = None,
    ) -> None: ...
    def log(
        self,
        buffer: object,
        position: int,
        limit: int,
        readable: int,
        file_from_offset: int,
        most: int,
        room: int,
    ) -> tuple[tuple[Memory, int, int], int]: ...
    def pull(
        self,
        units: object,
        first: int,
        queue: tuple[int, int],
        buffer: object,
        places: tuple[int, int],
        file_from_offset: int,
        limits: tuple[int, int, int, tuple[int, int], tuple[int, int], int],
        tags: tuple[list[int], list[bytes]] | None,
        most: int,
        room: int,
    ) -> tuple[tuple[Memory, int, int], int, tuple[tuple[Memory, int, int], int] | None]: ...
    def at(
        self, buffer: object, places: object, readable: int, file_from_offset: int
    ) -> tuple[Memory, int, int]: ...

class Slots:
    def __init__(self, count: int) -> None: ...
    @property
    def used(self) -> int: ...
    def pack(
        self,
        key_hash: object,
        physical_offset: object,
        store_timestamp: object,
        *,
        first: int,
        begin_timestamp: int,
        first_diff: int | None,
    ) -> Memory: ...
    def wrong_links(self, items: object, first: int) -> tuple[bytearray, bytearray]: ...
    def prove(
        self,
        items: object,
        key_hash: object,
        physical_offset: object,
        store_timestamp: object,
        *,
        first: int,
        begin_timestamp: int,
    ) -> int: ...
    def stored(self, start: int, count: int) -> SlotBytes | None: ...

def unit_lines(
    units: object,
    queue_offset: int,
    parts: tuple[bytes, bytes, bytes, bytes, bytes],
    most: int,
    start: int | None,
    end: int | None,
) -> tuple[Memory, int, int]: ...

#: What an appender has stored.
Stored = tuple[
    bytearray,
    list[tuple[int, int, int, int, int, bytes]],
    tuple[bytearray, bytearray, bytearray],
    tuple[bytes, int] | None,
]

#: Called with a topic, a queue id and the queue's next offset, if that is known. Returns the next
#: offset, and the queue offset before which units have disk space.
AskedForQueue = Callable[[str, int, int | None], tuple[int, int] | None]
#: Called with the positions at which the next record begins and ends. Returns the end of the room.
AskedForRoom = Callable[[int, int], int | None]

class Appender:
    def __init__(
        self,
        *,
        usual: object | None,
        shortest_properties: int,
        largest_record: int,
        indexes_tags: bool,
        classes: tuple[type, type] | None,
    ) -> None: ...
    def admit(self, topic: str, queue_id: int, next: int, limit: int) -> int: ...
    def taken(self) -> Stored: ...
    def forget(self) -> None: ...
    def append(
        self,
        buffer: object,
        lines: bytes,
        at: int,
        *,
        position: int,
        end: int,
        file_from_offset: int,
        most: int,
        enough: int,
        born_timestamp: int,
        store_timestamp: int,
        queue: AskedForQueue | None = None,
        room: AskedForRoom | None = None,
        descriptor: int = -1,
    ) -> tuple[int, int, int, int, BaseException | None]: ...
    def append_messages(
        self,
        buffer: object,
        source: Iterator[object],
        first: object | None,
        *,
        position: int,
        end: int,
        file_from_offset: int,
        most: int,
        enough: int,
        clock: Callable[[], int] | None,
        queue: AskedForQueue | None = None,
        room: AskedForRoom | None = None,
        descriptor: int = -1,
    ) -> tuple[int, Any, int, int]: ...
    def put(
        self,
        message: object,
        buffer: object,
        position: int,
        end: int,
        file_from_offset: int,
        queue_offset: int,
        clock: Callable[[], int],
    ) -> tuple[int, int] | tuple[int, int, list[int], int]: ...

def join_runs(
    parts: list[tuple[Runs, object]],
) -> tuple[list[tuple[int, int, int, int]], Memory]: ...

#: A key hash, the first and the last store time (ms), and whether the file is growing.
WantedItems = tuple[int, int, int, bool]
#: The header's begin and count, and the number of the next item; 0: there is none.
ReachedItem = tuple[int, int, int]
#: An item: its number, physical offset, seconds, and the number of the item before it.
Hit = tuple[int, int, int, int]

class IndexReader:
    def __init__(self, descriptor: int, slots: int, items: int) -> None: ...
    def select(
        self, wanted: WantedItems, reached: ReachedItem | None, most: int
    ) -> tuple[ReachedItem, list[Hit]]: ...

class Rows:
    def __init__(self, cells: Sequence[tuple[str, object]]) -> None: ...

def pull_records(
    type: type,
    units: object,
    queue: tuple[int, int],
    buffer: object,
    places: tuple[int, int],
    file_from_offset: int,
    limits: tuple[int, int, int, tuple[int, int], tuple[int, int], int],
) -> tuple[list[Any], int] | None: ...
def pull_stored(
    units: object,
    queue: tuple[int, int],
    buffer: object,
    places: tuple[int, int],
    file_from_offset: int,
    limits: tuple[int, int, int, tuple[int, int], tuple[int, int], int],
    codes: list[int] | None,
    outgoing: tuple[int, int],
) -> tuple[bytes, int, int] | None: ...
def rows_of_key(
    rows: Rows,
    readers: Sequence[object],
    find: Callable[[int], object],
    topic: str,
    key: str,
    begin: int,
    is_growing: bool,
    most: int,
) -> tuple[list[dict[str, Any]], int] | None: ...
def lines_of_keys(
    lines: Lines,
    readers: Sequence[object],
    find: Callable[[int], object],
    topic: str,
    keys: Sequence[str],
    begin: int,
    is_growing: bool,
    most: int,
) -> tuple[tuple[Memory, int, int], int, int, list[tuple[int, int, int, int]]]: ...
def index_key_hash(topic: str, key: str) -> int: ...
def record_at(
    type: type, buffer: object, position: int, readable: int, file_from_offset: int
) -> object: ...
def arrow_columns(
    buffer: object, numbers: list[Any], topics: tuple[bytes, bytes], names: list[str]
) -> list[list[object] | None] | None: ...

class PutCounts:
    def __init__(self, ends: list[int]) -> None: ...
    def take(self) -> tuple[list[tuple[str, int, int]], list[int], float]: ...

class SingleAppender:
    def __init__(
        self,
        *,
        shortest_properties: int,
        largest_record: int,
        indexes_tags: bool,
        classes: tuple[type, type],
        parts: object,
        answers: object,
        clock: Callable[[], int] | None,
        counts: PutCounts,
    ) -> None: ...
    def set_log(self, buffer: object, base: int, reserved: int) -> None: ...
    def admit(
        self,
        topic: str,
        queue_id: int,
        queue: object,
        mapped: object,
        dirty: object,
        buffer: object,
        first: int,
        limit: int,
    ) -> None: ...
    def set_index(
        self,
        mapped: object,
        dirty: object,
        buffer: object,
        slots: int,
        slot_count: int,
        items: int,
        limit: int,
        fields: tuple[int, ...],
    ) -> LiveHeader: ...
    def put(
        self,
        topic: object,
        body: object,
        queue_id: object,
        flag: object,
        sys_flag: object,
        properties: object,
        properties_bytes: object,
        born_timestamp: object,
        born_host: object,
        store_host: object,
        reconsume_times: object,
        prepared_transaction_offset: object,
        write_offset: int,
        failed: bool,
        generation: int,
        live: LiveHeader | None,
        waits: bool,
    ) -> Any: ...

class LiveHeader:
    fields: tuple[int, int, int, int, int, int]

def units_by_queue(
    batches: list[list[object]],
) -> tuple[list[tuple[int, int, int, bool]], bytearray, bytearray]: ...
def link_items(
    slot: object, number: object, newest_of_slot: object, big_endian: bool, count: int
) -> tuple[bytearray, bytearray, bytearray, int]: ...
def group_by_queue(topic_id: object, queue_id: object) -> list[tuple[int, int, bytearray]]: ...

class ItemRun:
    def __init__(
        self,
        buffer: object,
        slots: int,
        slot_count: int,
        items: int,
        next: int,
        keys: tuple[object, object, object],
        first: int,
        count: int,
        first_diff: int,
        before: tuple[int, ...],
        behind: tuple[int, ...],
    ) -> None: ...
    @property
    def fields(self) -> tuple[int, ...]: ...

def store_items(
    buffer: object,
    slots: int,
    slot_count: int,
    items: int,
    next: int,
    key_hashes: list[int],
    physical_offset: int,
    first_diff: int,
    diff: int,
) -> int: ...
def stores_behind() -> bool: ...
def store_units(buffer: object, position: int, stored: object) -> None: ...
def tell_of_lost_pages(before: str, after: str, code: int) -> None: ...
def panic() -> None: ...
