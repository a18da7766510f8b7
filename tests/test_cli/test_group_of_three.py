"""The store of one member of a DLedger group of three, as 5.3.3 wrote it: entries of three terms,
and a tail that the group never committed."""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path

import pytest

from formats import layouts
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.record import Record
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.operations.verify import INFO, Finding, Summary, verify
from tests import golden_data
from tests.test_cli.conftest import Cli

SAID = json.loads((golden_data.LATER / "dledger-group.json").read_text("utf-8"))
COMMITTED = [(row["topic"], row["queueId"], b64decode(row["body"])) for row in SAID["committed"]]
ALONE = [(row["topic"], row["queueId"], b64decode(row["body"])) for row in SAID["uncommitted"]]


@pytest.fixture(scope="module")
def member(golden_directory: Path) -> Path:
    return golden_data.unpacked("dledger-group", golden_directory, golden_data.LATER)


def stored(root: Path) -> list[tuple[str, int, bytes]]:
    with MessageStore(root, MessageStoreConfig()) as store:
        walked = [one for one in store.commit_log.walk() if isinstance(one, Record)]
        return [(one.topic, one.queue_id, store.body(one)) for one in walked]


def first_alone(root: Path) -> int:
    """Where the first entry starts that is not committed: before its record stands a header."""
    with MessageStore(root, MessageStoreConfig()) as store:
        walked = [one for one in store.commit_log.walk() if isinstance(one, Record)]
    return walked[len(COMMITTED)].physical_offset - layouts.DLEDGER_ENTRY.size


def test_all_that_a_member_has_is_read_and_sound(member: Path) -> None:
    assert stored(member) == COMMITTED + ALONE
    *findings, summary = verify(member, MessageStoreConfig())
    found = {one.code: one for one in findings if isinstance(one, Finding)}
    assert {one.severity for one in found.values()} == {INFO}
    assert found["dledger-uncommitted"].physical_offset == first_alone(member)
    assert found["dledger-uncommitted"].found == f"{len(ALONE)} entries behind entry 35"
    assert isinstance(summary, Summary)
    assert (summary.records, summary.units) == (len(COMMITTED + ALONE), len(COMMITTED))


def test_consumers_get_what_is_committed(cli: Cli, member: Path) -> None:
    queues = cli("queues", "--format", "ndjson", "--store", member).rows[:-1]
    got = []
    for row in queues:
        where = ("--topic", row["topic"], "--queue-id", str(row["queue_id"]))
        line = ("pull", *where, "--max-messages", "64", "--body", "base64", "--format", "ndjson")
        rows = [one for one in cli(*line, "--store", member).rows if one["type"] == "message"]
        got += [(one["topic"], one["queue_id"], b64decode(one["body"])) for one in rows]
    assert sorted(got) == sorted(COMMITTED)


def test_who_reads_the_log_is_told_of_the_tail(cli: Cli, member: Path, tmp_path: Path) -> None:
    said = f"{len(ALONE)} messages from offset {first_alone(member)} on, not known to be"
    done = cli("walk", "commitlog", "--limit", "1", "--store", member)
    assert done.code == 0 and said in " ".join(done.err.split())
    output = tmp_path / "plain"
    done = cli("export", "--output", output, "--format", "store", "--store", member)
    assert done.code == 0 and said in " ".join(done.err.split())
    assert stored(output) == COMMITTED + ALONE
    *findings, _ = verify(output, MessageStoreConfig())
    assert all(one.severity == INFO for one in findings if isinstance(one, Finding))
    row = cli("info", "--format", "ndjson", "--store", member).rows[0]
    assert (row["dledger_term"], row["dledger_end_index"]) == (len(SAID["leaders"]), 40)
    assert row["dledger_committed_index"] == 35


def test_of_a_store_in_no_group_nothing_is_said(cli: Cli, golden_directory: Path) -> None:
    for name in ("basic", "dledger"):
        store = golden_data.unpacked(name, golden_directory)
        assert "committed" not in cli("walk", "commitlog", "--limit", "1", "--store", store).err


def test_no_command_is_advised_that_does_not_write_to_it(
    cli: Cli, member: Path, tmp_path: Path
) -> None:
    """`flush` is refused there: what is not dispatched yet is its broker's to do."""
    root = golden_data.copy_tree(member, tmp_path / "member")
    (root / "abort").touch()
    (root / "checkpoint").unlink()
    for command in ("verify", "lint"):
        rows = cli(command, "--format", "ndjson", "--store", root).rows
        told = {row["code"]: row for row in rows if row["type"] == "finding"}
        for code in {"unclean-shutdown", "dispatch-behind", "checkpoint-missing"} & told.keys():
            assert told[code]["command"] is None and "Its broker" in told[code]["advice"]
            assert "flush" not in told[code]["advice"]
        assert ("dispatch-behind" in told) == (command == "verify")
        assert {"unclean-shutdown", "checkpoint-missing"} <= told.keys()
    assert cli("flush", "--store", root).code == 5
    done = cli("simulate-start", "--store", member)
    assert done.code == 5 and "what keeps" not in done.err
