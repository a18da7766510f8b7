"""What is said of findings: the verdict, the worst first, and command lines that can be run."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqctl.cli import findings as report
from rmqctl.cli.advice import COMMANDS, command_line, look_anew
from rmqctl.cli.findings import FindingsReport, counted
from rmqctl.cli.output import RowWriter
from rmqctl.cli.settings import Settings
from rmqctl.operations.verify import CODES
from rmqctl.operations.verify.findings import Adviser
from rmqctl.operations.verify.findings import finding as found
from rmqctl.shell import shell_line
from tests import golden_data
from tests.conftest import Golden
from tests.golden_data import broker_conf
from tests.test_cli.conftest import NASTY, Cli

PLACE = {
    "physical_offset": 0,
    "topic": "orders",
    "queue_id": 0,
    "queue_offset": 1,
    "found": "group cg_orders at 99",
}


def test_every_code_has_its_command_or_none() -> None:
    assert COMMANDS.keys() == CODES.keys()


def test_the_commands_are_command_lines(cli: Cli, store: Path) -> None:
    cli("info", store=store)  # Writes broker.conf.
    conf = str(store.parent / "broker.conf")
    lines = {command_line(found(code, **PLACE), str(store), conf) for code in CODES} - {None}
    assert len(lines) > 10
    for line in sorted(map(str, lines)):
        words = shlex.split(line)
        if words[0] != "rmqctl":
            assert words[0] in ("chmod", "chown", "diff", "ls", "sysctl", "ulimit")
            continue
        assert words[-4:] == ["--store", str(store), "--broker-conf", conf]
        if "--to-file-queues" in words:
            refused = cli(*words[1:])
            assert refused.code == 2 and "has no queues in RocksDB" in refused.err
            continue
        done = cli(*words[1:])
        is_of_another = "timer rebuild" in line  # This store has no timer.
        assert done.code in (0, 1, 6) or (done.code == 2 and is_of_another), (line, done.err)
        assert "--in-place" not in words or done.code == 6, "what replaces files asks first"


def test_a_member_of_a_group_is_advised_what_it_is_not_refused(
    cli: Cli, golden: Golden, tmp_path: Path
) -> None:
    root, conf = tmp_path / "store", tmp_path / "broker.conf"
    shutil.copytree(golden("dledger"), root)
    conf.write_text(golden_data.broker_conf_text("dledger"))
    place = {**PLACE, "physical_offset": 48, "topic": "TopicA"}
    lines = {command_line(found(code, **place), str(root), str(conf)) for code in CODES} - {None}
    assert len(lines) > 5
    for line in sorted(map(str, lines)):
        words = shlex.split(line)
        if words[0] == "rmqctl":
            assert cli(*words[1:]).code in (0, 1, 6), line


@pytest.mark.parametrize("name", ["rocksdb", "controller"])
def test_nor_is_who_looks_at_a_store_that_only_its_brokers_write_to(
    name: str, cli: Cli, golden: Golden, golden_directory: Path, tmp_path: Path
) -> None:
    root, conf = tmp_path / "store", tmp_path / "broker.conf"
    if name == "rocksdb":
        shutil.copytree(golden_data.unpacked(name, golden_directory, golden_data.LATER), root)
        settings = json.loads((golden_data.LATER / f"{name}.json").read_text("utf-8"))["config"]
        conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    else:
        shutil.copytree(golden("basic"), root)
        conf.write_text(golden_data.broker_conf_text("basic"))
        (root / "epochFileCheckpoint").write_text("0-1-0\n")
    place = {**PLACE, "physical_offset": 16384 * (name == "rocksdb"), "topic": "TopicA"}
    lines = {command_line(found(code, **place), str(root), str(conf)) for code in CODES} - {None}
    assert len(lines) > 5
    for line in sorted(map(str, lines)):
        words = shlex.split(line)
        if words[0] == "rmqctl" and "--to-file-queues" not in words:
            assert cli(*words[1:]).code in (0, 1, 6), line


@pytest.mark.parametrize("kind", ["member", "rocksdb", "controller"])
def test_no_text_names_a_command_that_its_store_refuses(
    kind: str, golden: Golden, golden_directory: Path, tmp_path: Path
) -> None:
    """What else a text says stays; of a store that we may write all of it does."""
    root = tmp_path / "store"
    config = broker_conf("dledger" if kind == "member" else "basic")
    if kind == "rocksdb":
        shutil.copytree(golden_data.unpacked(kind, golden_directory, golden_data.LATER), root)
    else:
        shutil.copytree(golden("dledger" if kind == "member" else "basic"), root)
    if kind == "controller":
        (root / "epochFileCheckpoint").write_text("0-1-0\n")
    advised, ours = Adviser(root, config), Adviser(golden("basic"), broker_conf("basic"))
    refused = ["flush", "group", "repair`", "timer rebuild", *["rebuild"] * (kind != "member")]
    for code in CODES:
        one = found(code)
        assert ours(one) == one
        told = advised(one).advice.replace("`rmqctl rebuild queues --to-file-queues", "")
        named = [word for word in refused if f"`rmqctl {word}" in told]
        assert not named and told.endswith("."), (code, told)
    mismatch = advised(found("unit-delivery-time-mismatch")).advice
    assert "messageDelayLevel" in mismatch and ("makes the queue anew" in mismatch) == (
        kind == "member"
    )


@pytest.mark.parametrize("case", ["bad-magic-late", "bad-size-late", "flip-body-early", "hole"])
def test_what_a_damaged_log_is_advised_can_be_run(
    case: str, cli: Cli, golden: Golden, tmp_path: Path
) -> None:
    damage = golden_data.damage_case(case)
    root, conf = tmp_path / "store", tmp_path / "broker.conf"
    shutil.copytree(golden(damage["base"]), root)
    golden_data.apply_damage(root, damage["ops"])
    settings = golden_data.INDEX["stores"][damage["base"]]["config"]
    conf.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    done = cli("verify", "--store", root, "--broker-conf", conf, "--format", "ndjson")
    commands = [row["command"] for row in done.rows if row.get("command")]
    assert commands
    for command in commands:
        words = shlex.split(command)
        shown = cli(*words[1:], "--format", "ndjson")
        assert shown.code in (0, 1), (command, shown.err)
        if words[1] == "walk":
            first, behind = shown.rows[:2]
            assert first["type"] == "damage" and behind["type"] in ("message", "blank")
            # The place is one where damage begins; within it a walk would read nonsense.
            words[words.index("--start") + 1] = str(first["physical_offset"] + 1)
            inside = cli(*words[1:])
            assert inside.code == 5
            assert f"The next one starts at {behind['physical_offset']}." in inside.err


def test_a_place_that_is_not_known_makes_no_command() -> None:
    assert command_line(found("unit-mismatch", path="consumequeue"), "store", None) is None
    assert command_line(found("record-crc-mismatch"), "store", None) is None
    later = found("index-behind", advice="The next start does it.")
    assert command_line(later, "store", None) is None


def test_a_file_of_a_queue_tells_the_queue() -> None:
    astray = found("file-length-mismatch", path="consumequeue/%RETRY%g/3/00000000000000000000")
    line = command_line(astray, "/data/my store", None)
    assert line == (
        "rmqctl rebuild queues --in-place --topic %RETRY%g --queue-id 3 --store '/data/my store'"
    )
    of_log = found("file-length-mismatch", path="commitlog/00000000000000000000", found=7)
    line = "rmqctl salvage --output store.salvaged --dry-run --store store"
    assert command_line(of_log, "store", None) == line
    empty = of_log._replace(found="0")
    assert command_line(empty, "store", None) == (
        "rmqctl repair --plan store.plan.json --store store"
    )


def test_files_of_the_store_are_named_in_it() -> None:
    older = found("config-older-than-backup", path="config/topics.json")
    assert command_line(older, "/data/my store", "broker.conf") == (
        "diff '/data/my store/config/topics.json.bak' '/data/my store/config/topics.json'"
    )
    few = found("map-limit-too-low", expected="90000 or more", found=65530)
    assert command_line(few, "store", None) == "sysctl -w vm.max_map_count=90000"
    copy = found("config-unreadable", path="config/topics.json.bak")
    assert command_line(copy, "store", None) is None


def test_no_plan_is_written_over_another(tmp_path: Path) -> None:
    stray = found("foreign-file", path="commitlog/notes.txt", found="no file offset")
    for name in ("store.plan.json", "store.plan-2.json", "store.plan-3.json"):
        look_anew()
        line = command_line(stray, f"{tmp_path}/store/", None)
        assert line == f"rmqctl repair --plan {tmp_path}/{name} --store {tmp_path}/store/"
        (tmp_path / name).touch()
    by_other_sizes = stray._replace(found="not a multiple of 1024")
    assert command_line(by_other_sizes, "store", None) is None


@pytest.mark.parametrize(
    "word", ["a b", "$(touch x)", "it's", "-x", "", NASTY, "\\", "a\nb", "日本", "\udcff", "!"]
)
def test_a_shell_gives_the_words_back(word: str) -> None:
    line = shell_line(["printf", "%s", word])
    assert line.isprintable()
    done = subprocess.run(["bash", "-c", line], capture_output=True, check=True)
    assert done.stdout == word.encode("utf-8", "surrogateescape")


def _damaged(store: Path) -> None:
    units = store / "consumequeue" / "orders" / "0" / ("0" * 20)
    data = bytearray(units.read_bytes())
    data[0] = data[100] = 1
    units.write_bytes(data)
    (store / "checkpoint").unlink()
    (store / "abort").touch()


def test_a_table_begins_with_the_verdict(cli: Cli, store: Path) -> None:
    sound = cli("verify", store=store)
    assert sound.out.splitlines()[0] == "OK: 60 messages, 3 queues, 1 index file agree"
    _damaged(store)
    done = cli("verify", store=store)
    lines = done.out.splitlines()
    assert done.code == 1
    assert lines[0] == "2 errors, 1 warning: unit-mismatch (2), checkpoint-missing"
    severities = [line.split()[0] for line in lines[2 : 2 + 4]]
    assert severities == ["error", "error", "warning", "info"]
    where = ["--store", str(store), "--broker-conf", str(store.parent / "broker.conf")]
    rebuild = f"  rmqctl rebuild queues --in-place --topic orders --queue-id 0 {' '.join(where)}"
    assert lines.count(rebuild) == 1
    assert f"  rmqctl flush {' '.join(where)}" in lines
    rows = cli("verify", "--format", "ndjson", store=store).rows
    assert rebuild.strip() in [row["command"] for row in rows if row["type"] == "finding"]
    summary = rows[-1]
    assert (summary["queues"], summary["index_files"]) == (3, 1)


def test_the_verdict_of_config(cli: Cli, store: Path) -> None:
    out = cli("config", "check", store=store).out
    assert out.splitlines()[0].startswith(("OK: ", "1 error", "1 warning", "2 warnings"))


def _settings() -> Settings:
    return Settings(Path("store"), None, "table", False, False)


@pytest.mark.parametrize("held", [1, 1 << 20], ids=["in a file", "in memory"])
def test_many_findings_are_sorted_without_being_held(
    held: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(report, "_HELD_BYTES", held)
    codes = ("log-starts-late", "torn-tail", "unit-mismatch") * 20
    with (
        RowWriter("table", main_type="finding") as writer,
        FindingsReport(writer, is_table=True) as told,
    ):
        for number, code in enumerate(codes):
            told.add(found(code, topic="t", queue_id=number, physical_offset=number), _settings())
        told.finish({"records": 1}, counted(message=1))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "20 errors, 20 warnings: unit-mismatch (20), torn-tail (20)"
    rows = [line.split() for line in lines[2:62]]
    assert [row[0] for row in rows] == ["error"] * 20 + ["warning"] * 20 + ["info"] * 20
    assert [int(row[3]) for row in rows[:20]] == list(range(2, 60, 3)), "as they were found"
    assert sum(line.startswith("  rmqctl rebuild") for line in lines) == 5
    assert any("the others stand in the rows" in line for line in lines)


@pytest.mark.parametrize("code", ["queue-begun-again", "queue-offset-repeated"])
def test_no_queue_is_to_be_made_anew_whose_messages_claim_one_place(
    code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A rebuild would put older messages there, and lead to the same advice again and again."""
    with (
        RowWriter("table", main_type="finding") as writer,
        FindingsReport(writer, is_table=True) as told,
    ):
        for number in (0, 1):
            told.add(found("unit-mismatch", topic="t", queue_id=number), _settings())
        told.add(found(code, topic="t", queue_id=0), _settings())
        told.add(found("unit-misplaced", topic="t", queue_id=0), _settings())
        told.finish({"records": 1}, counted(message=1))
    lines = capsys.readouterr().out.splitlines()
    rebuilds = [line for line in lines if line.startswith("  rmqctl rebuild")]
    assert len(rebuilds) == 1 and "--queue-id 1" in rebuilds[0]
    assert sum("  Not for queues with " in line for line in lines) == 2
    assert any(line.startswith("  rmqctl walk commitlog --topic t --queue-id 0") for line in lines)


def test_a_store_is_looked_at_once_for_all_its_findings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be a million. The next report looks again: a plan may have been written."""
    asked: list[object] = []

    def noted(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def called(at: Any) -> Any:
            asked.append(call)
            return call(at)

        return called

    listdir, lexists = os.listdir, os.path.lexists
    monkeypatch.setattr(os, "listdir", noted(listdir))
    monkeypatch.setattr(os.path, "lexists", noted(lexists))
    for number in range(1, 3):
        with (
            RowWriter("table", main_type="finding") as writer,
            FindingsReport(writer, is_table=True) as told,
        ):
            asked.clear()
            for code in ("unit-mismatch", "bad-magic", "consumer-offset-without-queue") * 5:
                settings = Settings(tmp_path / "store", None, "table", False, False)
                told.add(found(code, topic="t", queue_id=1, physical_offset=1), settings)
            assert asked.count(listdir) <= 2 and asked.count(lexists) == number
        (tmp_path / "store.plan.json").touch()


def test_what_was_found_before_an_interruption_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with (
        pytest.raises(KeyboardInterrupt),
        RowWriter("table", main_type="finding") as writer,
        FindingsReport(writer, is_table=True) as told,
    ):
        told.add(found("bad-magic", physical_offset=7), _settings())
        raise KeyboardInterrupt
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "not finished; so far 1 error: bad-magic"
    assert lines[2].split()[:2] == ["error", "bad-magic"]


def test_what_was_looked_at_is_counted() -> None:
    assert counted(message=0, queue=0) == "0 messages"
    assert counted(message=1, queue=2, index_file=1) == "1 message, 2 queues, 1 index file"
