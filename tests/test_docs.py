"""What the documents say is what the program does."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import rmqctl
from rmqctl.cli.main import cli
from rmqctl.engine.message import MessageExtBrokerInner
from rmqctl.engine.messagestore import MessageStore
from rmqctl.operations.verify import reference

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def commands(group: click.Group, path: str = "rmqctl") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield f"{path} {name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")


COMMANDS = dict(commands(cli))


def test_the_version_stands_in_both_places() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == rmqctl.__version__


def test_the_page_of_findings_is_up_to_date() -> None:
    page = (ROOT / "docs/reference/findings.md").read_text()
    assert page == reference.page(), "python -m rmqctl.operations.verify.reference writes it"


@pytest.mark.parametrize("name", sorted({path.split()[1] for path in COMMANDS}))
def test_every_command_is_in_the_readme(name: str) -> None:
    assert f"`rmqctl {name}" in README


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_has_examples_of_itself(path: str) -> None:
    assert getattr(COMMANDS[path], "examples", ()), f"{path} has no examples"
    assert any(path in line for line in COMMANDS[path].examples)


def example_lines() -> list[str]:
    lines = [line for c in COMMANDS.values() for line in getattr(c, "examples", ())]
    return sorted(set(lines))


@pytest.mark.parametrize("line", example_lines())
def test_examples_parse(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every option of an example exists: the command line gets as far as its function."""
    monkeypatch.setenv("RMQCTL_STORE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    words = shlex.split(line)
    arguments = words[words.index("rmqctl") + 1 :]
    for name in ("|", "&&", ">"):
        arguments = arguments[: arguments.index(name)] if name in arguments else arguments
    for value in arguments:
        if "." in value and "/" not in value:
            (tmp_path / value).touch()
    command: click.Command = cli
    while isinstance(command, click.Group):
        if arguments[0].isdigit():  # `dump OFFSET` is short for `dump record OFFSET`.
            arguments.insert(0, "record")
        found = command.get_command(click.Context(command), arguments[0])
        assert found is not None, arguments[0]
        command, arguments = found, arguments[1:]
    command.make_context("rmqctl", arguments)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_the_library_snippet_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "store"
    with MessageStore(store, writable=True, create=True) as opened:
        opened.put_message(MessageExtBrokerInner("orders", b"hello", properties={"TAGS": "a"}))
    (snippet,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    exec(snippet.replace("/data/rocketmq/store", str(store)), {})
    assert "0 0 {'TAGS': 'a'} b'hello'" in capsys.readouterr().out
