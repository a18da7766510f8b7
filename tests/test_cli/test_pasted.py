"""Commands in errors and notes: they name the store as the command line did, and work as pasted."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqctl.cli.pasted import forget, pasteable
from tests.test_cli.conftest import BROKER_CONF, Cli


def commands(text: str) -> list[list[str]]:
    """The command lines between backticks, as words without ``rmqctl``."""
    return [shlex.split(line)[1:] for line in re.findall(r"`(rmqctl [^`]*)`", text)]


def test_a_command_in_an_error_works_as_it_stands(cli: Cli, store: Path) -> None:
    where = store.rename(store.with_name("a store, 'my' $own"))
    error = cli("message", "99999999", store=where).err
    named = commands(error)
    assert [words[0] for words in named] == ["info", "walk"]
    for words in named:
        assert words[-4:] == [
            *("--store", str(where)),
            *("--broker-conf", str(where.parent / "broker.conf")),
        ]
        assert cli(*words, "--quiet").code == 0


def test_a_queue_with_a_hole_is_made_anew_by_the_command_of_the_error(
    cli: Cli, store: Path
) -> None:
    file = min((store / "consumequeue/orders/1").iterdir())
    with file.open("r+b") as opened:
        opened.seek(40)
        opened.write(bytes(20))
    line = ("put", "--topic", "orders", "--queue-id", "1", "--body", "x")
    done = cli(*line, store=store)
    assert done.code == 5
    (words,) = commands(done.err)
    assert cli(*words, "--yes").code == 0
    assert cli(*line, store=store).code == 0


@pytest.mark.parametrize("before", [True, False], ids=["before", "behind"])
def test_only_what_was_typed_is_told(
    cli: Cli, store: Path, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    command = ("pull", "--topic", "nope", "--queue-id", "0")
    option = ("--store", str(store))
    done = cli(*option, *command) if before else cli(*command, *option)
    assert f"`rmqctl topics --store {store}` lists all" in done.err
    monkeypatch.setenv("RMQCTL_STORE", str(store))
    assert "`rmqctl topics` lists all" in cli(*command).err


def test_a_broker_conf_that_names_the_store_is_enough(cli: Cli, store: Path) -> None:
    conf = store.parent / "own.conf"
    conf.write_text(f"{BROKER_CONF}storePathRootDir={store}\n")
    done = cli("pull", "--topic", "nope", "--queue-id", "0", "--broker-conf", conf)
    assert f"`rmqctl topics --broker-conf {conf}` lists all" in done.err


def test_a_command_that_takes_several_stores_has_the_one_that_was_typed(
    cli: Cli, store: Path
) -> None:
    line = ("rebuild", "queues", "--in-place", "--dry-run", "--topic", "nope", "--store", store)
    assert f"`rmqctl topics --store {store}` lists all" in cli(*line).err


def test_commands_that_are_no_next_step_stay_as_they_are(cli: Cli, store: Path) -> None:
    absent = cli("info", "--store", "absent").err
    assert "`rmqctl put --create` makes" in absent
    assert cli("info", "--stor", store).err.endswith("Try `rmqctl info --help`.\n")


def test_what_a_command_has_is_not_added_again(cli: Cli, store: Path) -> None:
    cli("info", "--broker-conf", store.parent / "broker.conf", store=store)
    told = pasteable("`rmqctl verify --broker-conf FILE`, `rmqctl verify --store=DIR`")
    assert (
        told == f"`rmqctl verify --broker-conf FILE --store {store}`, `rmqctl verify --store=DIR`"
    )


def test_a_command_that_is_not_whole_stays_as_it_is(cli: Cli, store: Path) -> None:
    cli("info", store=store)
    assert pasteable("`rmqctl rebuild --output`, `rmqctl walk`") == (
        "`rmqctl rebuild --output`, `rmqctl walk`"
    )
    assert pasteable("`rmqctl repair --undo`").startswith(f"`rmqctl repair --undo --store {store}")
    forget()
    assert pasteable("`rmqctl repair --undo`") == "`rmqctl repair --undo`"


def test_what_a_plan_leaves_says_how_to_go_on(cli: Cli, copy_store: Any, tmp_path: Path) -> None:
    """Without the broker.conf an index of other sizes cannot be made anew."""
    store = copy_store("broker")
    with min((store / "commitlog").iterdir()).open("r+b") as file:
        file.seek(95)  # The last letter of a topic: the index has a message that is not there.
        file.write(b"\x07")
    shutil.rmtree(store / "consumequeue/orders/1")  # No unit contradicts the log.
    done = cli("repair", "--plan", tmp_path / "plan.json", "--store", store)
    left = [line for line in done.out.splitlines() if "(maxHashSlotNum)" in line]
    assert left, done
    for line in left:
        assert "give its broker.conf with --broker-conf" in line
        assert f"`rmqctl verify --store {store}`" in line
