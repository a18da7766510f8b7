"""``MessageStoreConfig``: sizes and switches of a store, by the broker's own property names.

File sizes are taken from the files. Values that files do not tell, such as the split of an index
file into slots and items, or the sizes for an empty store, come from a ``broker.conf``, else they
are RocketMQ's defaults.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from formats import constants
from formats.geometry import Geometry
from formats.text import java_long, java_long_value, java_split
from rmqctl.errors import BrokerConfError

_UNITS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
#: Milliseconds that a slot of the timer wheel (5.x) may stand for, the longest first.
TIMER_PRECISIONS = (1000, 500, 200, 100)


@dataclass(frozen=True, slots=True)
class MessageStoreConfig:
    """The part of ``MessageStoreConfig`` (and ``BrokerConfig``) that shapes the files or their
    deletion, and ``brokerName``.

    ``explicit`` names the fields that a ``broker.conf`` has set: only these can contradict a file.
    ``overruled`` names the switches that the store's queues contradict
    (:mod:`rmqctl.engine.services.multiqueues`).
    """

    mapped_file_size_commit_log: int = constants.DEFAULT_MAPPED_FILE_SIZE_COMMIT_LOG
    mapped_file_size_consume_queue: int = constants.DEFAULT_MAPPED_FILE_SIZE_CONSUME_QUEUE
    mapped_file_size_consume_queue_ext: int = constants.DEFAULT_MAPPED_FILE_SIZE_CONSUME_QUEUE_EXT
    enable_consume_queue_ext: bool = False
    max_hash_slot_num: int = constants.DEFAULT_MAX_HASH_SLOT_NUM
    max_index_num: int = constants.DEFAULT_MAX_INDEX_NUM
    message_index_enable: bool = True
    message_index_safe: bool = False
    max_message_size: int = constants.DEFAULT_MAX_MESSAGE_SIZE
    message_delay_level: str = constants.DEFAULT_MESSAGE_DELAY_LEVEL
    enable_lmq: bool = False
    enable_multi_dispatch: bool = False
    max_lmq_consume_queue_num: int = 20_000
    broker_role: str = "ASYNC_MASTER"
    os_page_cache_busy_time_out_mills: int = 1000
    flush_disk_type: str = "ASYNC_FLUSH"
    sync_flush_timeout: int = 5000
    slave_timeout: int = 3000
    ha_send_heartbeat_interval: int = 5000
    ha_housekeeping_interval: int = 20_000
    ha_transfer_batch_size: int = 32_768
    ha_slave_fallbehind_max: int = 256 << 20
    flush_interval_commit_log: int = 500
    flush_commit_log_timed: bool = True
    flush_commit_log_least_pages: int = 4
    flush_commit_log_thorough_interval: int = 10_000
    commit_interval_commit_log: int = 200
    commit_commit_log_least_pages: int = 4
    commit_commit_log_thorough_interval: int = 200
    flush_interval_consume_queue: int = 1000
    flush_consume_queue_least_pages: int = 2
    flush_consume_queue_thorough_interval: int = 60_000
    transient_store_pool_enable: bool = False
    transient_store_pool_size: int = 5
    warm_maped_file_enable: bool = False
    flush_least_pages_when_warm_maped_file: int = 4096
    max_transfer_bytes_on_message_in_memory: int = 256 * 1024
    max_transfer_count_on_message_in_memory: int = 32
    max_transfer_bytes_on_message_in_disk: int = 64 * 1024
    max_transfer_count_on_message_in_disk: int = 8
    access_message_in_memory_max_ratio: int = 40
    store_path_root_dir: str = ""
    store_path_commit_log: str = ""
    read_only_commit_log_store_paths: str = ""
    broker_name: str = ""
    delete_when: str = "04"
    file_reserved_time: int = 72
    transaction_time_out: int = 6000
    transaction_check_max: int = 15
    enable_retry_topic_v2: bool = False
    mapper_file_size_batch_consume_queue: int = constants.DEFAULT_BATCH_QUEUE_FILE_SIZE
    disk_max_used_space_ratio: int = 75
    clean_file_forcibly_enable: bool = True
    #: The timer of 5.x.
    mapped_file_size_timer_log: int = constants.DEFAULT_MAPPED_FILE_SIZE_TIMER_LOG
    timer_precision_ms: int = constants.DEFAULT_TIMER_PRECISION_MS
    timer_roll_window_slot: int = constants.DEFAULT_TIMER_ROLL_WINDOW_SLOT
    timer_max_delay_sec: int = constants.DEFAULT_TIMER_MAX_DELAY_SEC
    #: Tiered storage of 5.x, a plug-in with settings of its own.
    tiered_store_file_path: str = ""
    tiered_store_index_file_max_hash_slot_num: int = constants.DEFAULT_MAX_HASH_SLOT_NUM
    #: Forms of a store that no command changes (:mod:`rmqctl.engine.state.laterversions`).
    enable_d_leger_commit_log: bool = False
    d_leger_self_id: str = ""
    enable_controller_mode: bool = False
    config_manager_version: str = "v1"
    store_type: str = "default"
    rocksdb_c_q_double_write_enable: bool = False
    explicit: frozenset[str] = field(default_factory=frozenset)
    overruled: frozenset[str] = field(default_factory=frozenset)

    @property
    def index_geometry(self) -> Geometry:
        return Geometry(self.max_hash_slot_num, self.max_index_num)

    @property
    def is_transient_store_pool_enable(self) -> bool:
        """Whether the pool is used: only with asynchronous flush, and never by a slave."""
        return (
            self.transient_store_pool_enable
            and self.flush_disk_type == "ASYNC_FLUSH"
            and self.broker_role != "SLAVE"
        )

    def is_explicit(self, name: str) -> bool:
        return name in self.explicit

    @property
    def told_lmq(self) -> bool | None:
        """``enableLmq``; None where no ``broker.conf`` says it."""
        is_told = self.enable_lmq or self.is_explicit("enable_lmq")
        return self.enable_lmq if is_told else None

    def delay_levels(self) -> list[int]:
        """Delays in milliseconds; level ``i`` is item ``i - 1``
        (``ScheduleMessageService#parseDelayLevel``).

        :raises BrokerConfError: one is malformed. Two blanks in a row have an empty level between
            them, with which a broker does not start.
        """
        levels = []
        for text in java_split(self.message_delay_level, " "):
            number, unit = java_long(text[:-1]), _UNITS.get(text[-1:])
            if number is None or unit is None:
                reason = f"{text[:40]!r} is not a number and one of s m h d"
                raise BrokerConfError(path="messageDelayLevel", reason=reason)
            levels.append(java_long_value(number * unit))
        return levels

    def properties(self) -> dict[str, object]:
        """Every setting of 4.9.3, by its name in a ``broker.conf``, except paths and settings that
        are null in Java."""
        left_out = "explicit", "overruled", "enable_controller_mode", "config_manager_version"
        later = (
            "mapped_file_size_timer_log",
            "mapper_file_size_batch_consume_queue",
            "timer_",
            "tiered_",
            "enable_retry_topic_v2",
            "rocksdb_",
        )
        return {
            _camel(one.name): getattr(self, one.name)
            for one in fields(self)
            if one.name not in left_out
            and not one.name.startswith(later)
            and "path" not in one.name
            and getattr(self, one.name) != ""
        }

    @property
    def overruled_names(self) -> list[str]:
        """:attr:`overruled` as ``broker.conf`` spells them."""
        return sorted(map(_camel, self.overruled))


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


#: broker.conf's spelling → field; brokers have both spellings of "mapped" in the wild.
_PROPERTIES = {
    _camel(f.name): f for f in fields(MessageStoreConfig) if f.name not in ("explicit", "overruled")
}
_PROPERTIES |= {
    name.replace("mappedFile", "mapedFile"): f
    for name, f in _PROPERTIES.items()
    if name.startswith("mappedFile")
}
_POSITIVE = ("mapped_file_size", "mapper_file_size", "max_")
_MOST_DIGITS = 19
#: The most bytes of a file.
_MOST_BYTES = 1 << 20
_CHOICES = {
    "flush_disk_type": ("SYNC_FLUSH", "ASYNC_FLUSH"),
    "broker_role": ("ASYNC_MASTER", "SYNC_MASTER", "SLAVE"),
}


def parse_broker_conf(text: str, source: str = "broker.conf") -> MessageStoreConfig:
    """Reads Java properties. Unknown names are ignored.

    :raises BrokerConfError: a value has not the right type, or is not positive.
    """
    values: dict[str, object] = {}
    from rmqctl.engine.settings.properties import properties

    for name, value, number in properties(text, source):
        known = _PROPERTIES.get(name)
        if known is not None:
            values[known.name] = _value(known.name, str(known.type), value, source, number)
    precision = values.get("timer_precision_ms")
    if isinstance(precision, int):
        values["timer_precision_ms"] = _timer_precision(precision)
    size = values.get("mapped_file_size_consume_queue")
    if isinstance(size, int):
        # MessageStoreConfig#getMappedFileSizeConsumeQueue rounds up to a whole unit.
        unit = constants.CQ_STORE_UNIT_SIZE
        values["mapped_file_size_consume_queue"] = -(-size // unit) * unit
    return replace(MessageStoreConfig(), explicit=frozenset(values), **values)  # type: ignore[arg-type]


def _timer_precision(milliseconds: int) -> int:
    """The precision that a broker takes for a configured one: the largest of
    :data:`TIMER_PRECISIONS` that is not larger, else the smallest
    (``MessageStoreConfig#setTimerPrecisionMs``)."""
    fitting = (one for one in TIMER_PRECISIONS if one <= milliseconds)
    return next(fitting, TIMER_PRECISIONS[-1])


def load_broker_conf(path: str | Path) -> MessageStoreConfig:
    """Reads a ``broker.conf``; :raises BrokerConfError: it cannot be read or is not valid."""
    return parse_broker_conf(read_broker_conf(path), str(path))


def read_broker_conf(path: str | Path) -> str:
    """The text of a ``broker.conf``, one character for each byte, as ``Properties#load`` reads it
    (``BrokerStartup``). :raises BrokerConfError: it cannot be read, or is far too large."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise BrokerConfError(path=str(path), reason=error.strerror) from error
    if len(data) > _MOST_BYTES:
        raise BrokerConfError(path=str(path), reason=f"it has more than {_MOST_BYTES} bytes")
    return data.decode("latin-1")


def _value(name: str, kind: str, text: str, source: str, number: int) -> object:
    if kind != "str" and text != text.rstrip():
        raise BrokerConfError(
            path=source,
            reason=f"line {number}: {text[:40]!r} ends in blanks, so that a broker does not take "
            "it, and goes by its default; take the blanks away",
        )
    if kind == "bool":
        if text.lower() not in ("true", "false"):
            raise BrokerConfError(
                path=source, reason=f"line {number}: {text!r} is neither true nor false"
            )
        return text.lower() == "true"
    if kind == "int":
        # No Java number has more digits, and Python refuses to read thousands.
        is_number = text.isdecimal() and len(text) <= _MOST_DIGITS
        if not is_number or (name.startswith(_POSITIVE) and int(text) == 0):
            raise BrokerConfError(
                path=source, reason=f"line {number}: {text[:40]!r} is not a positive whole number"
            )
        if int(text) > constants.INT_MAX:
            raise BrokerConfError(path=source, reason=f"line {number}: {text} exceeds a Java int")
        return int(text)
    if "\0" in text:
        raise BrokerConfError(path=source, reason=f"line {number}: there is a NUL in it")
    choices = _CHOICES.get(name, (text,))
    if text not in choices:
        raise BrokerConfError(
            path=source, reason=f"line {number}: {text!r} is none of {', '.join(choices)}"
        )
    return text
