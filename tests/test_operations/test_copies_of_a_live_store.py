"""salvage and ``export --format store`` of a store that somebody writes to meanwhile: what comes
after the log was read is not lost, and consumers do not get ahead of the copy."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rmqctl.engine.log.commitlog import CommitLog
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.operations.mend import plainstore, salvage
from rmqctl.operations.mend.salvage import Salvage, plan_salvage, write_salvage
from rmqctl.operations.mend.salvagefiles import copy_config
from rmqctl.operations.mend.salvagelog import Reading, read_log
from rmqctl.operations.mend.salvagerows import Report
from rmqctl.operations.verify import Finding, verify
from tests.test_cli.conftest import CONFIG, store

__all__ = ["store"]  # A fixture of other files.

OFFSETS = '{"offsetTable":{"orders@g":{0:%d}}}'


def go_on(root: Path, count: int) -> None:
    """Somebody stores ``count`` messages, and a group consumes them at once."""
    with MessageStore(root, CONFIG, writable=True) as writer:
        for number in range(count):
            message = MessageExtBrokerInner("orders", b"later %d" % number, 0)
            put = writer.put_message(message)
            assert put.stored is not None
            end = put.stored.queue_offset + 1
    (root / "config").mkdir(exist_ok=True)
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        (root / "config" / name).write_text(OFFSETS % end)


def assert_is_of_before(root: Path, before: str) -> None:
    assert [one for one in verify(root, CONFIG) if isinstance(one, Finding)] == []
    assert (root / "config/consumerOffset.json").read_text() == before
    assert not (root / "config/consumerOffset.json.bak").exists()


@pytest.mark.parametrize("placeholders", [False, True])
@pytest.mark.parametrize("count", [1, 100])
def test_salvage(
    store: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    count: int,
    placeholders: bool,
) -> None:
    """With 100 messages in further files, too."""
    go_on(store, 1)
    (store / "config/consumerOffset.json.bak").unlink()
    before = (store / "config/consumerOffset.json").read_text()

    def read_and_go_on(log: CommitLog, **more: Any) -> Reading:
        reading = read_log(log, **more)
        go_on(store, count)
        return reading

    monkeypatch.setattr(salvage, "read_log", read_and_go_on)
    wanted = Salvage(store, CONFIG, tmp_path / "new", None, placeholders)
    with closing(plan_salvage(wanted)) as plan:
        go_on(store, 1)
        report = Report(plan)
        assert list(report.planned()) == []
        write_salvage(plan)
        assert list(report.numbering()) == []
    assert report.is_complete
    assert_is_of_before(tmp_path / "new", before)


def test_export_as_a_store(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on(store, 1)
    (store / "config/consumerOffset.json.bak").unlink()
    before = (store / "config/consumerOffset.json").read_text()

    def go_on_and_copy(root: Path, *more: Any) -> None:
        go_on(store, 100)
        copy_config(root, *more)

    monkeypatch.setattr(plainstore, "copy_config", go_on_and_copy)
    plainstore.write_plain_store(store, CONFIG, tmp_path / "new")
    assert_is_of_before(tmp_path / "new", before)


def test_a_last_record_that_is_written_meanwhile_is_copied_whole(
    store: Path, tmp_path: Path
) -> None:
    """A broker stores a record's size first, and its properties last."""
    with MessageStore(store, CONFIG, writable=True) as writer:
        message = MessageExtBrokerInner("orders", b"last", properties={"KEYS": "k" * 30})
        assert writer.put_message(message).is_ok
        end = writer.max_offset
        file = writer.commit_log.files.entries[-1]
        first = writer.min_offset
    whole = file.path.read_bytes()
    tail = slice(end - file.file_from_offset - 20, end - file.file_from_offset)
    file.path.write_bytes(whole[: tail.start] + bytes(20) + whole[tail.stop :])

    def write_rest(done: int) -> None:
        if done == end - first:
            file.path.write_bytes(whole)

    plainstore.write_plain_store(store, CONFIG, tmp_path / "new", write_rest)
    assert [one for one in verify(tmp_path / "new", CONFIG) if isinstance(one, Finding)] == []
    with MessageStore(tmp_path / "new", CONFIG) as copy:
        assert any(hit.matches for hit in copy.query_message("orders", "k" * 30))
