"""``rmqctl group set-offset``: offsets moved in the broker's own file, and the way back."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqctl.engine.state import brokerjson
from tests import golden_data
from tests.test_cli.conftest import BORN, Cli, Done, state

NDJSON = ("--format", "ndjson")


def configure(store: Path, text: str, name: str = "consumerOffset.json") -> Path:
    (store / "config").mkdir(exist_ok=True)
    path = store / "config" / name
    path.write_text(text)
    return path


def offsets(path: Path, key: str = "orders@g", table: str = "offsetTable") -> Any:
    return brokerjson.read(path)[table][key]


def set_offset(cli: Cli, store: Path, *line: str) -> Done:
    return cli("group", "set-offset", "g", "--topic", "orders", *line, *NDJSON, store=store)


def test_there_and_back_gives_the_brokers_own_bytes(
    cli: Cli,
    copy_store: Callable[[str], Path],
    broker_conf_file: Callable[[str], Path],
) -> None:
    root = copy_store("broker")
    file = root / "config" / "consumerOffset.json"
    original = file.read_bytes()
    others = {name: held for name, held in golden_data.state(root).items() if "config" not in name}
    where = ("--store", root, "--broker-conf", broker_conf_file("broker"), *NDJSON)
    line = ("group", "set-offset", "cg_orders", "--topic", "orders", *where)
    done = cli(*line, "--to", "begin", "--yes")
    assert done.code == 0, done.err
    assert [row["new_offset"] for row in done.rows[:-1]] == [0, 0, 0, 0]
    assert done.rows[-1]["read_again"] == 490 and done.rows[-1]["changed"] == 4
    assert offsets(file, "orders@cg_orders") == {0: 0, 1: 0, 2: 0, 3: 0}
    assert (root / "config" / "consumerOffset.json.bak").read_bytes() == original
    assert cli(*line, "--to", "end", "--yes").rows[-1]["skipped"] == 490
    assert file.read_bytes() == original
    journal = [json.loads(line) for line in (root / "config/rmqctl-offsets.ndjson").open()]
    moves = [(line["queue_id"], line["old_offset"], line["new_offset"]) for line in journal]
    assert moves[:4] == [(0, 124, 0), (1, 122, 0), (2, 122, 0), (3, 122, 0)]
    assert moves[4:] == [(0, 0, 124), (1, 0, 122), (2, 0, 122), (3, 0, 122)]
    after = {name: held for name, held in golden_data.state(root).items() if "config" not in name}
    assert after == others
    assert cli("config", "check", "-q", *where[:4]).code == 0


@pytest.mark.parametrize(
    ("to", "expected"),
    [
        ("begin", [0, 0]),
        ("end", [30, 29]),
        ("7", [7, 7]),
        # Message n is stored at BORN + 1000 + n, in queue n % 2.
        (f"@{BORN + 1021}", [11, 10]),
        ("@0", [0, 0]),
        ("-1h", [30, 29]),
        ("2023-11-14T22:13:21.021Z", [11, 10]),
    ],
)
def test_places(to: str, expected: list[int], cli: Cli, store: Path) -> None:
    file = configure(store, '{"offsetTable":{"orders@g":{0:20,1:31}}}')
    before = state(store)
    dry = set_offset(cli, store, "--to", to, "--dry-run")
    assert state(store) == before and dry.rows[-1]["dry_run"]
    refused = set_offset(cli, store, "--to", to)
    assert (refused.code, refused.out) == (6, "") and "--yes" in refused.err
    assert state(store) == before
    done = set_offset(cli, store, "--to", to, "--yes")
    assert done.code == 0, done.err
    assert [row["new_offset"] for row in done.rows[:-1]] == expected
    assert offsets(file) == dict(enumerate(expected))
    for row, told in zip(done.rows[:-1], dry.rows[:-1], strict=True):
        assert row == told
        unread = min(row["old_offset"], row["max_offset"])
        assert row["skipped"] - row["read_again"] == row["new_offset"] - unread
    again = set_offset(cli, store, "--to", to)
    assert again.code == 0 and again.rows[-1]["changed"] == 0, "nothing to consent to"


@pytest.mark.skipif(shutil.which("jq") is None, reason="the page's lines need jq")
def test_the_way_back_of_the_page(cli: Cli, store: Path) -> None:
    """As a reader types it: after two changes, of which the second has a queue without an offset
    before."""
    file = configure(store, '{"offsetTable":{"orders@g":{0:20}}}')
    assert set_offset(cli, store, "--to", "3", "--queue-id", "0", "--yes").code == 0
    time.sleep(0.002)  # Changes are told apart by their milliseconds.
    assert set_offset(cli, store, "--to", "end", "--yes").code == 0
    assert offsets(file) == {0: 30, 1: 29}
    page = Path(__file__).parents[2] / "docs" / "how-to" / "consumer-groups.md"
    lines = page.read_text().partition("newest change back:\n\n```sh\n")[2].partition("```")[0]
    (store.parent / "DIR").symlink_to(store)
    env = os.environ | {"PYTHON": sys.executable, "PYTHONPATH": os.pathsep.join(sys.path)}
    env |= {"RMQCTL_STORE": "DIR", "RMQCTL_BROKER_CONF": "broker.conf"}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", f'rmqctl() {{ "$PYTHON" -m rmqctl "$@"; }}\n{lines}'],
        cwd=store.parent,
        env=env,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "") and "changed=1" in done.stdout
    assert offsets(file) == {0: 3, 1: 29}


def test_one_queue_and_what_else_is_in_the_file(cli: Cli, store: Path) -> None:
    text = (
        '{"dataVersion":{"counter":7},"offsetTable":{"other@h":{3:4},'
        '"orders@g":{"1":5,0:6},"odd":[1.5,null,"\\ud800"]}}'
    )
    file = configure(store, text)
    done = set_offset(cli, store, "--to", "9", "--queue-id", "1", "--yes")
    assert (done.code, len(done.rows)) == (0, 2), done.err
    value = brokerjson.read(file)
    assert value == {
        "dataVersion": {"counter": 7},
        "offsetTable": {
            "other@h": {3: 4},
            "orders@g": {0: 6, 1: 9},
            "odd": [1.5, None, "\ud800"],
        },
    }


def test_the_entry_is_in_the_order_of_the_queues(cli: Cli, store: Path) -> None:
    """And what is no queue stays, behind them."""
    file = configure(store, '{"offsetTable":{"orders@g":{"odd":1,12:7,1:5}}}')
    assert set_offset(cli, store, "--to", "9", "--queue-id", "0", "--yes").code == 0
    assert list(offsets(file).items()) == [(0, 9), (1, 5), (12, 7), ("odd", 1)]


@pytest.mark.parametrize("text", ["[]", '{"offsetTable":[]}', '{"offsetTable":7}'])
def test_a_file_without_the_table_is_named(text: str, cli: Cli, store: Path) -> None:
    configure(store, text)
    before = state(store)
    done = set_offset(cli, store, "--to", "3", "--new", "--yes")
    assert done.code == 5 and "consumerOffset.json, line 1, column 1" in done.err
    assert "no object 'offsetTable'" in done.err and state(store) == before


@pytest.mark.parametrize("name", ["g@h", "@g", "@"])
def test_a_name_that_no_key_can_hold_is_refused(name: str, cli: Cli, store: Path) -> None:
    """``topic@group`` has one @ (``ConsumerOffsetManager.TOPIC_GROUP_SEPARATOR``)."""
    before = state(store)
    for group, topic in ((name, "orders"), ("g", name)):
        line = ("group", "set-offset", group, "--topic", topic, "--to", "end", "--new")
        for consent in ("--yes", "--dry-run"):
            done = cli(*line, consent, store=store)
            assert (done.code, done.out) == (2, "") and "no name of a group or topic" in done.err
    assert state(store) == before


def test_a_place_that_is_none_is_answered_with_those_that_there_are(cli: Cli, store: Path) -> None:
    configure(store, '{"offsetTable":{"orders@g":{0:20}}}')
    done = set_offset(cli, store, "--to", "foo")
    assert done.code == 2 and "give begin, end, a queue offset" in done.err
    assert "@ and epoch milliseconds" in done.err
    # What one types who has read of milliseconds somewhere else.
    for more in ((), ("--queue-id", "0")):
        done = set_offset(cli, store, "--to", "1714557600000", *more, "--yes")
        assert done.code == 2 and "give @1714557600000." in done.err
    assert set_offset(cli, store, "--to", "@1714557600000", "--dry-run").code == 0
    done = set_offset(cli, store, "--to", "31", "--queue-id", "0")
    assert "--queue-id" not in done.err and "begin, end, or a time" in done.err
    assert "--queue-id" in set_offset(cli, store, "--to", "31").err


def test_one_queue_is_told_as_one(cli: Cli, store: Path) -> None:
    configure(store, '{"offsetTable":{"orders@g":{0:20}}}')
    told = set_offset(cli, store, "--to", "21", "--queue-id", "0").err
    assert "in 1 queue: it will not get 1 message that" in told


@pytest.mark.parametrize("more", [(), ("--new",), ("--dry-run",), ("--yes",)], ids=repr)
def test_without_a_store_there_is_no_group_to_be_mistyped(
    more: tuple[str, ...], cli: Cli, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("absent", "empty"):
        line = ("group", "set-offset", "g", "--topic", "orders", "--to", "end", *more)
        done = cli(*line, "--store", tmp_path / name)
        assert done.code == 3 and "--store" in done.err


def test_what_is_refused_changes_nothing(cli: Cli, store: Path) -> None:
    configure(store, '{"offsetTable":{"orders@g":{0:20}}}')
    before = state(store)
    for line, said in (
        (("--to", "31"), "queue 0 goes from offset 0 to 30"),
        (("--to", "30"), "queue 1 goes from offset 0 to 29"),
        (("--to", "1", "--queue-id", "5"), "no queue 5 of topic 'orders'"),
        (("--to", "end", "--topic", "absent"), "no queue of topic 'absent'"),
        (("--to", "end", "--topic", "absent", "--new"), "no queue of topic 'absent'"),
    ):
        done = set_offset(cli, store, *line, "--yes")
        assert (done.code, done.out) == (2, "") and said in done.err
    mistyped = cli("group", "set-offset", "typo", "--topic", "orders", "--to", "end", store=store)
    assert mistyped.code == 2 and "'typo' has no offset of topic 'orders'" in mistyped.err
    assert state(store) == before


def test_a_group_that_is_new(cli: Cli, store: Path) -> None:
    done = set_offset(cli, store, "--to", "end", "--new", "--yes")
    assert [row["old_offset"] for row in done.rows[:-1]] == [None, None]
    assert done.rows[-1]["skipped"] == done.rows[-1]["read_again"] == 0
    file = store / "config" / "consumerOffset.json"
    assert file.read_text() == '{\n\t"offsetTable":{\n\t\t"orders@g":{0:30,1:29\n\t\t}\n\t}\n}'
    assert cli("groups", "--group", "g", *NDJSON, store=store).rows[-1]["lag"] == 0


def test_a_broken_file_leaves_its_good_copy(cli: Cli, store: Path) -> None:
    good = '{"offsetTable":{"orders@g":{0:20,1:20}}}'
    copy = configure(store, good, "consumerOffset.json.bak")
    file = configure(store, "{")
    assert set_offset(cli, store, "--to", "3", "--yes").code == 0
    assert copy.read_text() == good and offsets(file) == {0: 3, 1: 3}
    copy.unlink()
    file.write_text("{")
    before = state(store)
    done = set_offset(cli, store, "--to", "4", "--yes")
    assert done.code == 5 and "consumerOffset.json, line 1" in done.err
    assert state(store) == before


def test_light_groups_have_one_offset(cli: Cli, store: Path) -> None:
    text = '{"lmqOffsetTable":{"orders@%LMQ%g":5},"offsetTable":{"orders@g":{0:1,1:1}}}'
    file = configure(store, text, "lmqConsumerOffset.json")
    line = ("--topic", "orders", "--to", "8", "--yes", *NDJSON)
    done = cli("group", "set-offset", "%LMQ%g", *line, store=store)
    assert [row["queue_id"] for row in done.rows[:-1]] == [0]
    assert offsets(file, "orders@%LMQ%g", "lmqOffsetTable") == 8
    done = cli("group", "set-offset", "%LMQ%g", *line, "--queue-id", "1", store=store)
    assert done.code == 2 and "Leave --queue-id out" in done.err
    # No broker.conf tells: the file counts that has the group.
    assert set_offset(cli, store, "--to", "end", "--yes").rows[-1]["file"].startswith("config/lmq")
    assert offsets(file) == {0: 30, 1: 29}
    conf = store.parent / "plain.conf"
    conf.write_text("enableLmq=false\nmaxHashSlotNum=50\nmaxIndexNum=200\n")
    done = cli("group", "set-offset", "g", *line, "--store", store, "--broker-conf", conf)
    assert done.code == 2 and "no offset" in done.err


def test_which_of_two_files_counts(cli: Cli, store: Path) -> None:
    """A group with offsets in both: ``enableLmq`` decides, which is false unless it is said.
    ``groups`` counts with the same ones."""
    plain = configure(store, '{"offsetTable":{"orders@g":{0:5,1:5}}}')
    light = configure(store, '{"offsetTable":{"orders@g":{0:6,1:6}}}', "lmqConsumerOffset.json")
    dry = ("--to", "8", "--dry-run")
    done = set_offset(cli, store, *dry)
    assert [row["old_offset"] for row in done.rows[:-1]] == [5, 5]
    assert done.rows[-1]["file"] == "config/consumerOffset.json"
    assert cli("groups", *NDJSON, store=store).rows[-1]["lag"] == 30 + 29 - 2 * 5
    conf = store.parent / "light.conf"
    conf.write_text("enableLmq=true\nmaxHashSlotNum=50\nmaxIndexNum=200\n")
    where = ("--store", store, "--broker-conf", conf)
    assert cli("groups", *NDJSON, *where).rows[-1]["lag"] == 30 + 29 - 2 * 6
    line = ("group", "set-offset", "g", "--topic", "orders", *NDJSON, *where)
    done = cli(*line, *dry)
    assert [row["old_offset"] for row in done.rows[:-1]] == [6, 6]
    assert done.rows[-1]["file"] == "config/lmqConsumerOffset.json"
    # Such a broker does not read the other one, not even a broken one.
    light.unlink()
    assert cli(*line, *dry).code == 2 and cli("groups", *NDJSON, *where).rows[-1]["groups"] == 0
    plain.write_text("{")
    assert cli(*line, *dry).code == 2 and cli("groups", *NDJSON, *where).code == 0
    plain.write_text('{"offsetTable":{"orders@g":{0:5,1:5}}}')
    done = cli(*line, "--to", "8", "--new", "--yes")
    assert [row["old_offset"] for row in done.rows[:-1]] == [None, None]
    assert offsets(light) == {0: 8, 1: 8} and offsets(plain) == {0: 5, 1: 5}


@pytest.mark.parametrize(
    "name", ["consumerOffset.json", "consumerOffset.json.bak", "rmqctl-offsets.ndjson"]
)
def test_links_are_not_followed(name: str, cli: Cli, store: Path) -> None:
    configure(store, '{"offsetTable":{"orders@g":{0:20}}}')
    path = store / "config" / name
    target = store.parent / "target"
    target.write_text('{"offsetTable":{"orders@g":{0:20}}}')
    path.unlink(missing_ok=True)
    path.symlink_to(target)
    done = set_offset(cli, store, "--to", "3", "--yes")
    assert done.code == 5 and "symbolic link" in done.err
    assert target.read_text() == '{"offsetTable":{"orders@g":{0:20}}}'
    assert path.is_symlink()
    journal = store / "config" / "rmqctl-offsets.ndjson"
    assert journal == path or not journal.exists(), "what was refused is noted"


@pytest.mark.parametrize("name", ["consumerOffset.json.tmp", "consumerOffset.json.bak.tmp"])
def test_a_directory_in_the_place_of_a_file_on_its_way_is_named(
    name: str, cli: Cli, store: Path
) -> None:
    configure(store, '{"offsetTable":{"orders@g":{0:5,1:5}}}')
    (store / "config" / name).mkdir()
    before = state(store)
    done = set_offset(cli, store, "--to", "begin", "--yes")
    assert done.code == 5 and f"config/{name}: it is not a regular file" in done.err
    assert state(store) == before


def test_a_journal_that_was_cut_off_gets_whole_lines(cli: Cli, store: Path) -> None:
    configure(store, '{"offsetTable":{"orders@g":{0:20,1:20}}}')
    journal = configure(store, '{"timestamp":1}\n{"timest', "rmqctl-offsets.ndjson")
    set_offset(cli, store, "--to", "3", "--yes")
    lines = journal.read_text().splitlines()
    assert lines[:2] == ['{"timestamp":1}', '{"timest']
    assert [json.loads(line)["old_offset"] for line in lines[2:]] == [20, 20]


def test_offsets_in_rocksdb_are_refused(cli: Cli, store: Path) -> None:
    configure(store, '{"offsetTable":{"orders@g":{0:20}}}')
    (store / "config" / "consumerOffsets").mkdir()
    (store / "config" / "consumerOffsets" / "CURRENT").write_text("MANIFEST-000001")
    before = state(store)
    for more in ("--yes", "--dry-run"):
        done = set_offset(cli, store, "--to", "3", more)
        assert done.code == 5 and "RocksDB" in done.err and state(store) == before
    assert "config/consumerOffsets, which is not read" in cli("groups", store=store).err
    info = cli("info", *NDJSON, store=store).rows[0]
    assert info["not_understood"] == ["config/consumerOffsets: offsets in RocksDB (5.x)"]


def test_after_a_crash_the_store_is_brought_in_order_first(cli: Cli, store: Path) -> None:
    """The end is that of the queue with its last units, which a killed writer has not written."""
    configure(store, '{"offsetTable":{"orders@g":{0:20,1:20}}}')
    for queue_id in (0, 1):
        file = store / "consumequeue" / "orders" / str(queue_id) / ("0" * 20)
        data = bytearray(file.read_bytes())
        data[27 * 20 : 30 * 20] = bytes(60)
        file.write_bytes(data)
    (store / "abort").touch()
    dry = set_offset(cli, store, "--to", "end", "--dry-run")
    assert dry.rows[0]["type"] == "recovery"
    asked = set_offset(cli, store, "--to", "end")
    assert asked.code == 6, "neither has the numbers that it comes to"
    assert all("queues may get other ends" in " ".join(one.err.split()) for one in (asked, dry))
    done = set_offset(cli, store, "--to", "end", "--yes")
    assert [row["new_offset"] for row in done.rows[:-1]] == [30, 29]
    assert not (store / "abort").exists() and cli("verify", "-q", store=store).code == 0
    assert "other ends" not in set_offset(cli, store, "--to", "begin").err


def test_no_group_is_moved_while_its_queue_lacks_what_the_log_has(cli: Cli, store: Path) -> None:
    """What config check says leads to a flush, and not to the end of the queue as it is."""
    configure(store, '{"offsetTable":{"orders@g":{0:31,1:29}}}')
    older = shutil.copytree(store / "consumequeue", store.parent / "older")
    assert cli("put", "--topic", "orders", "--body", "x", store=store).code == 0
    shutil.rmtree(store / "consumequeue")
    older.rename(store / "consumequeue")
    found = cli("config", "check", *NDJSON, store=store).rows
    said = {row["command"] for row in found if row.get("code") == "consumer-offset-past-queue"}
    assert [shlex.split(line)[1:3] for line in said] == [["repair", "--plan"]]
    left = cli(*shlex.split(said.pop())[1:], *NDJSON).rows
    commands = {row["command"] for row in left if row.get("code") == "consumer-offset-past-queue"}
    assert [shlex.split(line)[1] for line in commands] == ["flush"]
    assert cli(*shlex.split(commands.pop())[1:]).code == 0
    codes = {row.get("code") for row in cli("config", "check", *NDJSON, store=store).rows}
    assert "consumer-offset-past-queue" not in codes
