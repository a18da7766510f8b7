"""``to_arrow``: the same messages as columns, without Spark."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rmqctl
from rmqctl import errors
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.record import PREFIXES
from rmqctl.operations.look.rows import message_row
from rmqctl.rows.columns import STRUCTURES, default_names
from tests import golden_data
from tests.conftest import Golden
from tests.test_cli.conftest import CONFIG, message

pa = pytest.importorskip("pyarrow", reason="pip install pyarrow")
ALL = [column.name for column in STRUCTURES["commitlog"]]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[rmqctl.Store]:
    with MessageStore(tmp_path / "store", CONFIG, writable=True, create=True) as opened:
        for number in range(40):
            assert opened.put_message(message(number)).is_ok
    with rmqctl.open(tmp_path / "store", broker_conf=CONFIG) as opened:
        yield opened


def rows(messages: Any, columns: list[str] | None = None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = messages.to_arrow(columns).read_all().to_pylist()
    for row in found:
        if "properties" in row:
            row["properties"] = dict(row["properties"])
    return found


def expected(messages: Any) -> list[dict[str, Any]]:
    """The declared columns as the engine's row, and the message itself, have them."""
    made = []
    for one in messages:
        row: dict[str, Any] = dict(message_row(one._record))
        row |= {"body": one.stored_body, "store_time": one.store_time, "born_time": one.born_time}
        row |= {"status": one.status, "damage": None, "store": str(one._store.path.absolute())}
        made.append({name: row[name] for name in ALL if name != "broker"})
    return made


@pytest.mark.parametrize("name", ["broker", "basic", "ipv6", "batch", "delay", "lmq"])
def test_columns_are_the_messages(name: str, golden: Golden) -> None:
    with rmqctl.open(golden(name), broker_conf=golden_data.broker_conf(name)) as opened:
        parts: list[rmqctl.Messages] = [opened, *opened.topics.values(), *opened.queues]
        for part in parts:
            wanted = [each for each in ALL if each != "broker"]
            assert rows(part, wanted) == expected(part), part
        reader = opened.to_arrow()
        assert reader.schema.names == default_names("commitlog")


def test_parts_and_times(store: rmqctl.Store) -> None:
    queue = store.topic("orders").queues[0]
    for part in (queue[5:9], queue[::-3], queue[:0], queue.between(queue[3].store_time)):
        assert rows(part, ["queue_offset"]) == [{"queue_offset": one.queue_offset} for one in part]
    since = queue[15].store_time
    assert rows(store.between(since), ["msg_id"]) == [
        {"msg_id": one.msg_id} for one in store.between(since)
    ]


def test_whoever_takes_arrow_takes_messages(store: rmqctl.Store) -> None:
    assert pa.table(store).num_rows == 40
    frame = store.topic("orders").to_arrow(["queue_id", "queue_offset", "store_time"]).read_pandas()
    assert frame.groupby("queue_id").queue_offset.max().to_dict() == {0: 19, 1: 19}
    assert str(frame.store_time.dt.tz) == "UTC"


def test_columns_that_are_none(store: rmqctl.Store) -> None:
    with pytest.raises(ValueError, match="no column 'colour', but physical_offset, "):
        store.to_arrow(["topic", "colour"])
    with pytest.raises(ValueError, match="one at least"):
        store.to_arrow([])
    assert store.to_arrow("topic").schema.names == ["topic"]


def test_damage_is_a_row_or_a_warning(store: rmqctl.Store) -> None:
    first, second = list(store)[:2]
    store.close()
    with (store.path / "commitlog" / ("0" * 20)).open("r+b") as log:
        log.seek(first.physical_offset + PREFIXES[0].size)
        log.write(b"!")
        log.seek(second.physical_offset)
        log.write(b"\xff" * 8)
    with rmqctl.open(store.path, broker_conf=CONFIG) as opened:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = rows(opened, ["physical_offset", "status", "total_size"])
        assert [row["status"] for row in found] == ["body-crc-mismatch", "damage", *["ok"] * 38]
        damage = {"physical_offset": second.physical_offset, "total_size": second.size}
        assert found[1] == damage | {"status": "damage"}
        with pytest.warns(rmqctl.DamageWarning) as told:
            assert len(rows(opened, ["body"])) == 39
        assert [one.filename for one in told] == [__file__] * 2
        with pytest.warns(rmqctl.DamageWarning, match="1 bodies"):
            assert len(rows(opened.topic("orders").queues[0], ["body"])) == 20


def test_after_a_close(store: rmqctl.Store) -> None:
    reader, table = store.topic("orders").queues[0].to_arrow(), pa.table(store)
    store.close()
    assert table["topic"].unique().to_pylist() == ["orders"]
    for read in (store.to_arrow, reader.read_all):
        with pytest.raises(ValueError, match="is closed"):
            read()


def test_batches_are_streamed(tmp_path: Path) -> None:
    """Of 80 MB no more is held at once than of a window of the scanner, or a batch of records."""
    body, count = "x" * 80_000, 1000
    with rmqctl.open(tmp_path / "big", writable=True, create=True) as opened:
        assert opened.put_all({"topic": "big", "body": body} for _ in range(count)) == count
    with rmqctl.open(tmp_path / "big") as opened:
        for part in (opened, opened.topic("big")):
            before = pa.total_allocated_bytes()
            seen = most = 0
            for batch in part.to_arrow(["body"]):
                seen += batch.num_rows
                most = max(most, pa.total_allocated_bytes() - before)
                del batch
            assert seen == count
            assert most < 40_000_000


def test_without_pyarrow_the_command_that_installs_it_is_named(
    store: rmqctl.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(errors.ArrowMissing) as told:
        store.to_arrow()
    command = f"`{sys.executable} -m pip install 'pyarrow>=22'`"
    assert str(told.value).endswith(f"Install it with {command}.")
    assert len(list(store)) == 40


def test_an_old_pyarrow(store: rmqctl.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pa, "__version__", "21.0.1")
    with pytest.raises(errors.ArrowMissing, match=r"version 21\.0\.1 is older than 22"):
        store.to_arrow()


def test_no_spark_is_loaded(golden: Golden) -> None:
    code = f"import sys, rmqctl\nstore = rmqctl.open({str(golden('basic'))!r})\n"
    code += "store.to_arrow().read_all()\nprint('pyspark' in sys.modules, 'click' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "False False\n", done.stderr
