"""A new version of the record, as one more line in `formats.commitlog.VERSIONS` makes it.

Run by `test_new_version.py` in a process of its own, `python -m tests.test_engine.new_version
DIRECTORY`: what follows from the table is made when modules are imported. The version has a length
of four bytes before its properties, and nobody writes it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from construct import Int16sb, Int32sb

from formats import commitlog, generate, layouts, pages

if TYPE_CHECKING:
    from rmqctl.engine.record.message import MessageExtBrokerInner
    from rmqctl.engine.settings.storeconfig import MessageStoreConfig

# rmqctl is imported where it is used, behind add_version.

MAGIC_CODE = 0xDAA320AC
LONGEST_PROPERTIES = 100_000
FILE_SIZE = 1 << 20


def add_version() -> None:
    """What the line in the table changes, and what the generator makes of it."""
    commitlog.VERSIONS[MAGIC_CODE] = commitlog.Version(
        Int16sb, 0x7FFF, Int32sb, LONGEST_PROPERTIES, "four-byte properties length", "9.9"
    )
    exec(generate.layouts_module(), vars(layouts))
    page = pages.pages()["record.md"]
    assert f"`u` is 3 with the magic code 0x{MAGIC_CODE:08X}" in page
    assert "| 2 or 4 | int16 or int32 | `properties_length` |" in page


def messages() -> list[MessageExtBrokerInner]:
    """Messages of three versions, by their topics; some of the new one are longer than any other's
    properties may be."""
    from rmqctl.engine.record.message import MessageExtBrokerInner

    topics = ("old", "new", "%RETRY%" + "g" * 150)
    return [
        MessageExtBrokerInner(
            topics[number % 3],
            b"body" * (number % 4),
            number % 2,
            properties={
                "KEYS": f"k{number}",
                "TAGS": "t",
                "rest": "x" * (70_000 if number % 9 == 1 else 20),
            },
        )
        for number in range(90)
    ]


def write(root: Path, config: MessageStoreConfig, given: list[MessageExtBrokerInner]) -> None:
    """Puts messages, one by one and as a stream, in the form that the new version needs."""
    from dataclasses import replace

    from rmqctl.engine.record.form import RecordForm
    from rmqctl.engine.state import laterversions

    class NewForm(RecordForm):
        def magic_code(self, topic: str) -> int:
            return MAGIC_CODE if topic == "new" else super().magic_code(topic)

    laterversions.record_form = lambda root, newest: NewForm(long_topics=True)
    from rmqctl.engine.messagestore import MessageStore

    with MessageStore(root, config, writable=True, create=True) as store:
        answers = [store.put_message(message) for message in given[:30]]
        answers += [answer for some in store.put_stream(given[30:]) for answer in some]
        assert [answer.status.value for answer in answers] == ["PUT_OK"] * len(given)
        too_long = replace(given[1], properties={"a": "x" * LONGEST_PROPERTIES})
        assert f"{LONGEST_PROPERTIES} are possible" in store.put_message(too_long).reason


def check_read(root: Path, config: MessageStoreConfig, given: list[MessageExtBrokerInner]) -> None:
    """Every record is what its schema builds; scanner, verify, info and dump know it."""
    from formats.text import encode_properties
    from rmqctl.engine.messagestore import MessageStore
    from rmqctl.engine.record.record import Record
    from rmqctl.engine.scan.backend import backends
    from rmqctl.operations.look.dump import dump_record
    from rmqctl.operations.look.info import not_understood
    from rmqctl.operations.verify.run import Summary, verify
    from tests.test_engine.test_scanner import DISPATCHERS, assert_same

    with MessageStore(root, config) as store:
        log = store.commit_log
        records = [entry for entry in log.walk() if isinstance(entry, Record)]
        assert len(records) == len(given)
        codes = {"old": 0xDAA320A7, "new": MAGIC_CODE}
        for record, message in zip(records, given, strict=True):
            assert record.magic_code == codes.get(record.topic, 0xDAA320AB)
            mapped, position = log.locate(record.physical_offset)
            parsed = commitlog.RECORD.parse(mapped.read(position, record.total_size))
            assert parsed.properties == encode_properties(message.properties)
            assert (record.topic, record.properties) == (message.topic, message.properties)
            assert mapped.read(position, record.total_size) == commitlog.RECORD.build(parsed)
        for backend in backends().values():
            assert_same(log, DISPATCHERS[0], backend)
        *fields, told = dump_record(store, records[1].physical_offset)
        assert told["type"] == "summary" and told["problems"] == []
        assert "record with a four-byte properties length" in str(fields)
        assert any("(5.1 and later)" in line or "(9.9" in line for line in not_understood(store))
        pulled = store.get_message("new", 1, 0).records
        assert pulled and all(record.magic_code == MAGIC_CODE for record in pulled)
    *findings, summary = verify(root, config)
    assert isinstance(summary, Summary)
    assert (findings, summary.records, summary.units) == ([], len(given), len(given))


def check_damaged(root: Path) -> None:
    """A length beyond the version's limit is damage; the next record is found behind it."""
    from formats.layouts import TAIL
    from rmqctl.engine.log.commitlog import CommitLog
    from rmqctl.engine.record.record import Damage, Record
    from rmqctl.engine.scan.backend import backends
    from tests.test_engine.test_scanner import DISPATCHERS, assert_same

    log = CommitLog(root / "commitlog", FILE_SIZE)
    records = [entry for entry in log.walk() if isinstance(entry, Record)]
    damaged = records[1]
    width = TAIL[MAGIC_CODE].properties_length.size
    assert (damaged.magic_code, records[2].magic_code, width) == (MAGIC_CODE, 0xDAA320AB, 4)
    at = damaged.total_size - len(damaged.properties_bytes) - width
    path = root / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    for length in (LONGEST_PROPERTIES + 1, -1, 1 << 30):
        place = damaged.physical_offset + at
        data[place : place + width] = length.to_bytes(width, "big", signed=True)
        path.write_bytes(data)
        entries = list(CommitLog(root / "commitlog", FILE_SIZE).walk())
        reasons = [entry.reason for entry in entries if isinstance(entry, Damage)]
        wrong = "total-size-mismatch" if length < 0 else "properties-length-out-of-range"
        assert reasons == [wrong]
        assert [entry for entry in entries if isinstance(entry, Record)] == [
            record for record in records if record != damaged
        ]
        for backend in backends().values():
            assert_same(CommitLog(root / "commitlog", FILE_SIZE), DISPATCHERS[0], backend)


def main(directory: Path) -> None:
    add_version()
    from rmqctl.engine.settings.storeconfig import MessageStoreConfig

    config = MessageStoreConfig(mapped_file_size_commit_log=FILE_SIZE)
    given = messages()
    write(directory / "store", config, given)
    check_read(directory / "store", config, given)
    check_damaged(directory / "store")
    print("written, read, scanned and explained")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
