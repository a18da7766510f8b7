"""``rmqctl salvage``: its rows and exit codes, bad input, a kill, a full disk."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from rmqctl.engine.files.extents import write_at
from rmqctl.errors import CannotWrite
from rmqctl.operations.mend import salvagefiles
from rmqctl.operations.mend.salvage import Salvage, plan_salvage, write_salvage
from tests.golden_data import state, tree_content
from tests.test_cli.conftest import BROKER_CONF, CONFIG, NASTY, Cli
from tests.test_operations.test_salvage import patched, records_of

NDJSON = ("--format", "ndjson")


@pytest.fixture
def damaged(store: Path) -> Path:
    """One message of 60 with another body than was stored."""
    patched(store, sorted(records_of(store, CONFIG))[20] + 90, b"\x7e")
    return store


def test_rows_and_exit_codes(cli: Cli, damaged: Path, tmp_path: Path) -> None:
    before, output = state(damaged), tmp_path / "new"
    dry = cli("salvage", "--output", output, "--dry-run", *NDJSON, store=damaged)
    done = cli("salvage", "--output", output, *NDJSON, store=damaged)
    assert dry.code == done.code == 1 and dry.rows[:-1] == done.rows[:-1]
    gap, lost, summary = done.rows
    assert (gap["type"], gap["reason"], gap["restored_bytes"]) == ("gap", "body-crc-mismatch", 0)
    assert lost == {
        "type": "lost",
        "topic": "orders",
        "queue_id": 0,
        "queue_offset": 10,
        "messages": 1,
        "physical_offset": gap["physical_offset"],
        "has_placeholder": False,
    }
    assert (summary["records"], summary["lost"], summary["fillers"]) == (59, 1, 1)
    # The rest of the log's first file: nothing of this queue stands behind the hole there.
    assert summary["passed_over"] == 0
    assert state(damaged) == before
    assert cli("verify", "-q", store=output).code == 0
    pulled = cli("pull", "--topic", "orders", "--queue-id", "0", *NDJSON, store=output)
    assert [row["queue_offset"] for row in pulled.rows[:-1]] == [*range(10), *range(11, 30)]
    whole = cli("salvage", "--output", tmp_path / "again", "-q", store=output)
    assert whole.code == 1  # A message lacks, by the numbers of the others.


def test_a_whole_file_under_another_name_is_named(cli: Cli, store: Path, tmp_path: Path) -> None:
    """Its messages are told as lost; with its own name none is."""
    second = sorted((store / "commitlog").iterdir())[1]
    path = second.rename(second.with_name(f"{second.name}.moved"))
    wanted = ("salvage", "--output", tmp_path / "new", "--dry-run", *NDJSON)
    done = cli(*wanted, store=store)
    assert done.code == 1 and done.rows[-1]["lost"] > 0
    assert f"{path} is the file {second.name} of the log" in done.err
    path.rename(second)
    done = cli(*wanted, store=store)
    assert done.code == 0 and done.err == ""


def test_a_sound_store_is_copied(cli: Cli, store: Path, tmp_path: Path) -> None:
    (store / "config").mkdir()
    (store / "config" / "topics.json").write_text("{}")
    done = cli("salvage", "--output", tmp_path / "new", *NDJSON, store=store)
    assert (done.code, done.err, len(done.rows)) == (0, "", 1)
    for name in ("commitlog", "consumequeue", "config"):
        assert tree_content(tmp_path / "new" / name) == tree_content(store / name)


@pytest.mark.parametrize("byte", [2, 5, 31, 87], ids=["size", "magic", "place", "body length"])
def test_a_damaged_last_record_is_no_torn_append(
    cli: Cli, store: Path, tmp_path: Path, byte: int
) -> None:
    """Its unit says that it was whole: nothing is cut off, and salvage puts it right."""
    before = tree_content(store)
    last = max(records_of(store, CONFIG))
    path = max((store / "commitlog").iterdir())
    flip(path, last - int(path.name) + byte, 0)
    rows = cli("verify", "--format", "ndjson", store=store).rows
    (found,) = (row for row in rows if row.get("code") in ("torn-tail", "stale-record"))
    assert "it was whole once" in found["advice"] and "salvage" in found["command"]
    plan = cli("repair", "--plan", tmp_path / "plan", "--format", "ndjson", store=store)
    assert plan.rows[-1]["steps"] == 0
    output = tmp_path / "new"
    done = cli("salvage", "--output", output, "--format", "ndjson", store=store)
    assert done.rows[0]["reason"] == "torn-tail", done.err
    assert (done.rows[-1]["restored"], done.rows[-1]["lost"]) == (1, 0)
    assert tree_content(output / "commitlog") == {
        name.removeprefix("commitlog/"): one
        for name, one in before.items()
        if name.startswith("commitlog/")
    }
    # After a crash both may be what it left, and the broker may have answered.
    (store / "abort").touch()
    rows = cli("verify", "--format", "ndjson", store=store).rows
    (torn,) = (row for row in rows if row.get("code") in ("torn-tail", "stale-record"))
    assert "may have acknowledged it" in torn["advice"]
    assert "and so do rmqctl commands that write" in torn["advice"]
    done = cli("salvage", "--output", tmp_path / "x", "--dry-run", *NDJSON, store=store)
    assert (done.rows[-1]["restored"], done.rows[-1]["lost"]) == (1, 0)
    # Once a start has taken the unit away nothing shows that, and it may have, still.
    assert cli("flush", store=store).code == 0
    done = cli("salvage", "--output", tmp_path / "x", "--dry-run", *NDJSON, store=store)
    assert done.rows[-1]["restored"] == 0
    rows = cli("verify", "--format", "ndjson", store=store).rows
    (torn,) = (row for row in rows if row.get("code") in ("torn-tail", "stale-record"))
    assert torn["code"] == "stale-record" or "as on disk is lost" in torn["advice"]


@pytest.mark.parametrize(("byte", "bit"), [(0, 6), (0, 7), (12, 7)], ids=str)
def test_a_record_of_no_place_is_left_out_of_no_queue_in_silence(
    cli: Cli, store: Path, tmp_path: Path, byte: int, bit: int
) -> None:
    """Its unit is right, and the record's number is none of a queue: who makes the queue anew says
    so, repair leaves it, and salvage puts the record right."""
    before = tree_content(store / "commitlog")
    place = sorted(records_of(store, CONFIG))[3]
    path = next(one for one in (store / "commitlog").iterdir() if int(one.name) == 0)
    at = place + (20 if byte < 8 else 0) + byte  # The queue offset, or the queue id.
    flip(path, at, bit)
    verified = cli("verify", "--format", "ndjson", store=store)
    codes = {row["code"] for row in verified.rows[:-1]}
    assert "queue-place-impossible" in codes and "unit-misplaced" not in codes
    assert not any("rebuild" in (row.get("command") or "") for row in verified.rows[:-1])
    plan = cli("repair", "--plan", tmp_path / "plan", "--format", "ndjson", store=store)
    assert plan.rows[-1]["steps"] == 0
    output = tmp_path / "anew"
    done = cli("rebuild", "queues", "--output", output, "--format", "ndjson", store=store)
    assert done.code == 1 and done.rows[0]["reason"] == "queue-place-impossible", done.err
    assert done.rows[0]["physical_offset"] == place
    mended = tmp_path / "mended"
    assert cli("salvage", "--output", mended, store=store).code == 0
    assert tree_content(mended / "commitlog") == before


def flip(path: Path, at: int, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ (1 << bit)]))


def test_messages_that_a_consumer_would_pass_over_are_told(
    cli: Cli, store: Path, tmp_path: Path
) -> None:
    patched(store, sorted(records_of(store, CONFIG))[2] + 90, b"\x7e")
    done = cli("salvage", "--output", tmp_path / "new", *NDJSON, store=store)
    assert done.rows[-1]["passed_over"] == 6 and "--placeholders keeps them" in done.err
    pull = ("pull", "--topic", "orders", "--queue-id", "0", *NDJSON)
    pulled = cli(*pull, store=tmp_path / "new").rows
    assert len(pulled) - 1 == 30 - 1 - 6
    done = cli("salvage", "--output", tmp_path / "all", "--placeholders", *NDJSON, store=store)
    assert (done.rows[-1]["passed_over"], done.rows[-1]["placeholders"], done.err) == (0, 1, "")
    assert len(cli(*pull, store=tmp_path / "all").rows) - 1 == 30


def test_bad_input(cli: Cli, damaged: Path, tmp_path: Path) -> None:
    before, full = state(damaged), tmp_path / "full"
    full.mkdir()
    (full / "x").touch()
    conf = tmp_path / "other.conf"
    conf.write_text(BROKER_CONF.replace("2048", "4096"))
    new = tmp_path / "new"
    for code, said, line in (
        (2, "missing option", ()),
        (2, "lies in the store", ("--output", damaged / "new")),
        (3, "not a RocketMQ store", ("--output", new, "--from", tmp_path)),
        (2, "is this one", ("--output", new, "--from", damaged)),
        (3, "there is no directory", ("--output", new, "--from", tmp_path / "none")),
        (3, "not a RocketMQ store", ("--output", new, "--from", full)),
        (6, "not empty", ("--output", full)),
    ):
        done = cli("salvage", *line, store=damaged)
        assert (done.code, done.out) == (code, "") and said in done.err, done
    done = cli("salvage", "--output", new, "--store", damaged, "--broker-conf", conf)
    assert done.code == 5 and "2048 bytes" in done.err
    (damaged / "dledger-n0" / "data").mkdir(parents=True)
    done = cli("salvage", "--output", new, store=damaged)
    assert done.code == 5 and "DLedger" in done.err
    (damaged / "dledger-n0" / "data").rmdir()
    (damaged / "dledger-n0").rmdir()
    assert not new.exists() and {*state(damaged)} == {*before}


def test_what_is_hostile_reaches_no_terminal(cli: Cli, store: Path, tmp_path: Path) -> None:
    patched(store, sorted(records_of(store, CONFIG))[-1] + 89, b"\x7e\x7e")
    done = cli("salvage", "--output", tmp_path / "new", "--placeholders", store=store)
    assert done.code == 1 and "nasty" in done.out
    assert not {*NASTY, "\u202e"} & {*done.out} - {*"red egnp.x[31m"}


def stores_until(most: int, seen: list[int]) -> Any:
    """What stores bytes, and is interrupted when that was done so often; counts in ``seen``."""
    real = write_at

    def store(descriptor: int, data: bytes, position: int) -> None:
        seen.append(position)
        if len(seen) > most:
            raise KeyboardInterrupt
        real(descriptor, data, position)

    return store


def test_a_run_that_was_cut_off_tells_what_it_leaves(
    cli: Cli, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(salvagefiles, "write_at", stores_until(1, []))
    done = cli("salvage", "--output", tmp_path / "new", store=store)
    assert done.code == 130
    assert f"stays in {tmp_path / 'new.rmqctl-new'}, and the same command" in done.err
    monkeypatch.undo()
    assert cli("salvage", "--output", tmp_path / "new", store=store).code == 0


def test_a_run_that_was_cut_off_goes_on(damaged: Path, tmp_path: Path) -> None:
    """Whatever file it was at; and begins anew where the store has changed since."""
    seen: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(salvagefiles, "write_at", stores_until(1 << 30, seen))
        write_salvage(plan_salvage(Salvage(damaged, CONFIG, tmp_path / "whole")))
    for at in range(len(seen)):
        output = tmp_path / f"new-{at}"
        plan = plan_salvage(Salvage(damaged, CONFIG, output))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(salvagefiles, "write_at", stores_until(at, []))
            with pytest.raises(KeyboardInterrupt):
                write_salvage(plan)
        building = output.with_name(output.name + ".rmqctl-new")
        done = {
            path.name: path.stat().st_ino
            for path in (building / "commitlog").iterdir()
            if path.suffix != ".part"
        }
        assert not output.exists() and (done or at < 2)
        if at == 3:
            os.utime(next((damaged / "commitlog").iterdir()), (1, 1))
        with ExitStack() as held:  # An inode that nobody has may be the next file's.
            for name in done:
                held.enter_context((building / "commitlog" / name).open("rb"))
            write_salvage(plan_salvage(Salvage(damaged, CONFIG, output)))
        inodes = {name: (output / "commitlog" / name).stat().st_ino for name in done}
        assert (inodes == done) == (at != 3 or not done)
        for name in ("commitlog", "consumequeue"):
            assert tree_content(output / name) == tree_content(tmp_path / "whole" / name)
        assert not building.exists()


@pytest.mark.parametrize("left", [b"[" * 100_000, b"\xff", b"[]", b'{"identity": 7}', None])
def test_what_a_cut_off_run_has_left_may_be_anything(
    cli: Cli, damaged: Path, tmp_path: Path, left: bytes | None
) -> None:
    building = tmp_path / "new.rmqctl-new"
    (building / "commitlog").mkdir(parents=True)
    (building / "commitlog" / f"{0:020d}").write_bytes(b"x")
    journal = building / salvagefiles.JOURNAL
    if left is None:
        os.mkfifo(journal)
    else:
        journal.write_bytes(left)
    done = cli("salvage", "--output", tmp_path / "new", store=damaged)
    assert done.code == 1, done.err
    assert cli("verify", "-q", store=tmp_path / "new").code == 0


def test_a_full_disk_is_an_error_and_the_next_run_goes_on(
    cli: Cli, damaged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, count = write_at, 0

    def full(*arguments: object) -> None:
        nonlocal count
        count += 1
        if count > 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(*arguments)  # type: ignore[arg-type]

    before, output = state(damaged), tmp_path / "new"
    with monkeypatch.context() as patch:
        patch.setattr(salvagefiles, "write_at", full)
        done = cli("salvage", "--output", output, store=damaged)
    assert done.code == CannotWrite.exit_code and "No space left" in done.err
    assert f"what is written stays in {output}.rmqctl-new, and the same command " in done.err
    assert not output.exists()
    assert cli("salvage", "--output", output, store=damaged).code == 1
    assert cli("verify", "-q", store=output).code == 0 and state(damaged) == before


def test_a_kill_at_any_moment_leaves_the_store_and_no_half_output(
    cli: Cli, damaged: Path, tmp_path: Path
) -> None:
    """SIGKILL at each rename and each link of the run, whatever these put in place."""
    before = state(damaged)
    code = (
        "import os, signal, sys\n"
        "left = int(sys.argv.pop(1))\n"
        "def hook(event, arguments):\n"
        "    global left\n"
        "    if event in ('os.rename', 'os.link', 'os.remove'):\n"
        "        left -= 1\n"
        "        if left < 0:\n"
        "            os.kill(os.getpid(), signal.SIGKILL)\n"
        "sys.addaudithook(hook)\n"
        "from rmqctl.cli.main import main\n"
        "main()\n"
    )
    conf = tmp_path / "broker.conf"
    conf.write_text(BROKER_CONF)
    ended = set()
    for at in (0, 2, 4, 6, 9):
        output = tmp_path / f"new-{at}"
        line = ["salvage", "--store", damaged, "--broker-conf", conf, "--output", output, "-q"]
        done = subprocess.run([sys.executable, "-c", code, str(at), *map(str, line)])
        ended.add(done.returncode)
        assert done.returncode in (-9, 1)
        assert output.exists() == (done.returncode == 1)
        if not output.exists():
            assert cli(*line).code == 1
        assert cli("verify", "-q", store=output).code == 0
        assert len(records_of(output, CONFIG)) == 59
    assert ended >= {-9} and state(damaged) == before
