"""What the shell completes from a store, as it asks: by a process's environment."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqctl.cli import completing
from rmqctl.cli.main import cli as root_command
from rmqctl.operations.look import du, names
from tests.test_cli.conftest import state

Complete = Callable[..., list[str]]


@pytest.fixture
def complete(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Complete:
    """``complete("queues --topic o")``: what bash is told at the end of a line."""
    for name in ("RMQCTL_STORE", "RMQCTL_BROKER_CONF", "RMQCTL_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))

    def answer(line: str, *words: str) -> list[str]:
        split = ["rmqctl", *(words or line.split(" "))]
        monkeypatch.setenv("COMP_WORDS", shlex.join(split[:-1]) + " " + split[-1])
        monkeypatch.setenv("COMP_CWORD", str(len(split) - 1))
        shell = completing._Bash(root_command, {}, "rmqctl", completing.VARIABLE)
        return [text.partition(",")[2] for text in shell.complete().split("\n") if text]

    return answer


def test_names_come_from_the_store(complete: Complete, store: Path) -> None:
    (store / "config").mkdir(exist_ok=True)
    table = '{"orders@cg_a":{0:1},"orders@cg_b":{0:1},"orders@other":{}'
    # A file that ends in the middle of something has names all the same.
    (store / "config" / "consumerOffset.json").write_text('{"offsetTable":' + table)
    before = state(store)
    at = f"--store {store}"
    assert complete(f"queues {at} --topic ") == ["orders"]
    assert complete(f"put {at} --topic or") == ["orders"]
    assert complete(f"--store {store} walk queue --topic o") == ["orders"]
    assert complete(f"pull {at} --topic x") == []
    assert complete(f"pull {at} --topic orders --queue-id ") == ["0", "1"]
    assert complete(f"pull {at} --queue-id ") == []
    assert complete(f"dump unit {at} orders ") == ["0", "1"]
    assert complete(f"groups {at} --group cg") == ["cg_a", "cg_b"]
    assert complete(f"group set-offset {at} o") == ["other"]
    files = sorted(path.name for path in (store / "index").iterdir())
    assert complete(f"dump index-header {at} 2") == files
    assert complete(f"dump index-item {at} ") == files
    assert complete(f"verify {at} --for") == ["--format"]
    assert complete(f"stats {at} --format nd") == ["ndjson"]
    assert state(store) == before


def test_the_store_may_be_anywhere_that_commands_find_it(
    complete: Complete, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "xdg" / "rmqctl").mkdir(parents=True)
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathRootDir={store}\n")
    (tmp_path / "xdg" / "rmqctl" / "config.toml").write_text(
        f'[stores.prod-a]\nbroker_conf = "{conf}"\n[stores.prod-b]\nstore = "/b"\n'
    )
    assert complete(f"queues --broker-conf {conf} --topic ") == ["orders"]
    assert complete("queues --store @prod-a --topic ") == ["orders"]
    assert complete("queues --store @") == ["@prod-a", "@prod-b"]
    assert complete("stats --store @prod-b") == ["@prod-b"]
    # So does bash split it.
    assert complete("", "queues", "--store", "@", "prod-a") == ["@prod-a"]
    assert complete("", "queues", "--store", "=@", "prod-") == ["@prod-a", "@prod-b"]
    assert complete("", "queues", "--store", "@", "prod-a", "--topic", "o") == ["orders"]
    assert complete("", "queues", "--store", "=", str(store), "--topic", "=", "o") == ["orders"]
    assert complete("", "queues", "--store", "=@", "prod-a", "--topic", "=") == ["orders"]
    monkeypatch.setenv("RMQCTL_STORE", str(store))
    assert complete("queues --topic ") == ["orders"]
    assert complete("index query --topic ") == ["orders"]


def test_fields_of_a_list_come_once_each(complete: Complete) -> None:
    assert set(completing.USAGE_FIELDS) == set(du.FIELDS)
    assert complete("du --by ") == list(completing.USAGE_FIELDS)
    assert complete("du --by topic,t") == ["topic,tag"]
    assert complete("du --by topic,") == [f"topic,{n}" for n in completing.USAGE_FIELDS[1:]]


def test_a_name_that_a_shell_would_obey_is_not_offered(complete: Complete, store: Path) -> None:
    for name in ("$(reboot)", "a;b", "a b", "a\nb", "a'b", "`x`", "\x1b[31m", "\u202ex", "a|b"):
        (store / "consumequeue" / name).mkdir()
    for name in ("订单", "%RETRY%cg"):
        (store / "consumequeue" / name).mkdir()
    offered = complete(f"queues --store {store} --topic ")
    assert offered == ["%RETRY%cg", "orders", "订单"]


def broken(root: Path, how: str) -> Path:
    """A store that is none, or one that is broken."""
    config = root / "config"
    config.mkdir(parents=True)
    if how == "file":
        (root / "consumequeue").touch()
        (root / "index").touch()
    elif how == "directory":
        (config / "consumerOffset.json").mkdir()
    elif how == "bytes":
        (config / "consumerOffset.json").write_bytes(bytes(range(256)) * 1000)
        (root / "consumequeue").mkdir()
    elif how == "loop":
        (root / "consumequeue").symlink_to("consumequeue")
        (root / "index").symlink_to("index")
    return root


@pytest.mark.parametrize("how", ["absent", "file", "directory", "bytes", "loop", "conf", "name"])
def test_a_broken_store_has_no_completions_and_no_error(
    how: str, complete: Complete, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at = f"--store {broken(tmp_path / 'store', how)}"
    if how == "conf":
        at = f"--broker-conf {tmp_path}/absent"
    elif how == "name":
        (tmp_path / "xdg" / "rmqctl").mkdir(parents=True)
        (tmp_path / "xdg" / "rmqctl" / "config.toml").write_text("[[[")
        at = "--store @x"
        assert complete("queues --store @") == []
    for line in (
        *("queues {} --topic ", "pull {} --topic ../.. --queue-id ", "groups {} --group "),
        *("dump index-header {} ", "pull {} --queue-id x --offset y --topic "),
    ):
        assert complete(line.format(at)) == []
    assert "queues" in complete("no-such-command --x ")
    assert capsys.readouterr() == ("", "")


def test_a_tab_does_not_wait_for_a_pipe(complete: Complete, store: Path) -> None:
    (store / "config").mkdir(exist_ok=True)
    os.mkfifo(store / "config" / "consumerOffset.json")
    assert complete(f"groups --store {store} --group ") == []


def asked(line: str, **variables: str) -> subprocess.CompletedProcess[str]:
    words = ["rmqctl", *line.split(" ")]
    environment = os.environ | {
        completing.VARIABLE: "bash_complete",
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    command = [sys.executable, "-X", "importtime", "-m", "rmqctl"]
    return subprocess.run(command, capture_output=True, text=True, env=environment | variables)


def test_the_scripts_take_an_option_and_its_value_as_one_word() -> None:
    """What zsh and fish make of ``--topic=or`` is seen in them only: click's own scripts put a
    topic in place of all of it, or offer none, and end ``topic,tag`` at the comma."""
    arguments: tuple[Any, ...] = (root_command, {}, "rmqctl", completing.VARIABLE)
    zsh = completing._Zsh(*arguments).source()
    assert "compset -P 1 '*='" in zsh and "compadd -V" in zsh and "compadd -U" not in zsh
    fish = completing._Fish(*arguments).source()
    assert "string split -m 1 ','" in fish and "echo $before$name" in fish and "%(" not in fish


def test_a_process_answers_and_loads_little(store: Path) -> None:
    done = asked(f"queues --store {store} --topic o")
    assert done.returncode == 0 and done.stdout == "plain,orders\n"
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert not loaded & {"numpy", "construct", "rich", "orjson", "pyspark", "pyarrow", "mmap"}
    assert all(line.startswith("import time:") for line in done.stderr.splitlines())


def test_many_topics_are_listed_up_to_a_bound(
    complete: Complete, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names, "MOST_ENTRIES", 50)
    for number in range(100):
        (store / "consumequeue" / f"t{number}").mkdir()
    assert 48 <= len(complete(f"queues --store {store} --topic ")) <= 50
