"""What the documents say is what the program does."""

from __future__ import annotations

import doctest
import importlib.util
import io
import json
import re
import shlex
import tomllib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_origin

import click
import pytest

import rmqctl
from formats.remotingcodes import RequestCode
from rmqctl.cli import pages, tables
from rmqctl.cli.command import EXIT_CODES
from rmqctl.cli.main import cli, run
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.fields import FIELDS
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.record.record import PREFIXES
from rmqctl.reference import __main__ as reference
from rmqctl.rows import Row
from rmqctl.rows.field import Field, fields_of
from rmqctl.rows.kinds import KINDS
from rmqctl.serve.processors.table import PROCESSORS, WRITERS
from rmqctl.serve.sockets import Server
from rmqctl.serve.wire.command import RemotingCommand
from rmqctl.serve.wire.frames import encode_frame
from tests import golden_data, transcripts
from tests.conftest import Golden
from tests.test_replicate.live import live

RUN = Server.run
ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
WITH_TRANSCRIPTS = [
    "README.md",
    "docs/how-to/backups.md",
    "docs/how-to/bad-record.md",
    "docs/how-to/broker-will-not-start.md",
    "docs/how-to/compare-stores.md",
    "docs/how-to/lost-queue.md",
    "docs/how-to/messages-missing.md",
    "docs/how-to/move-a-store.md",
    "docs/how-to/serve.md",
    "docs/tutorial/dead-broker.md",
    "docs/tutorial/first-store.md",
]
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


def test_what_follows_from_the_code_is_up_to_date() -> None:
    stale = [
        str(path.relative_to(ROOT))
        for path, text in reference.generated_files().items()
        if not path.exists() or path.read_text() != text
    ]
    assert stale == [], "python -m rmqctl.reference writes them"


@pytest.mark.parametrize("name", sorted({path.split()[1] for path in COMMANDS}))
def test_every_command_is_in_the_readme(name: str) -> None:
    assert f"`rmqctl {name}" in README


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_has_examples_of_itself(path: str) -> None:
    examples = getattr(COMMANDS[path], "examples", ())
    assert examples, f"{path} has no examples"
    assert any(path in line for line in examples)


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
        if arguments[0].startswith("-"):  # `backup --output …` of `backup create --output …`.
            arguments.insert(0, "create")
        found = command.get_command(click.Context(command), arguments[0])
        assert found is not None, arguments[0]
        command, arguments = found, arguments[1:]
    command.make_context("rmqctl", arguments)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", page.read_text()):
        if "://" in target:
            continue
        linked = page.parent / target if target else page
        assert linked.exists(), target
        if anchor:
            assert anchor in anchors(linked.read_text()), f"{target}#{anchor}"


def anchors(page: str) -> set[str]:
    """The names that headings get on GitHub."""
    headings = re.findall(r"^#+ (.+)$", page, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}


def test_the_library_snippet_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "store"
    with MessageStore(store, writable=True, create=True) as opened:
        opened.put_message(MessageExtBrokerInner("orders", b"hello", properties={"TAGS": "a"}))
    (snippet,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    exec(snippet.replace("/data/rocketmq/store", str(store)), {})
    assert "0 0 {'TAGS': 'a'} b'hello'" in capsys.readouterr().out


@pytest.mark.parametrize("name", WITH_TRANSCRIPTS)
def test_transcripts_are_what_a_terminal_shows(name: str, tmp_path: Path) -> None:
    shown = transcripts.steps((ROOT / name).read_text())
    ran = transcripts.session([step.command for step in shown], tmp_path)
    for step, (status, output) in zip(shown, ran, strict=True):
        expected = transcripts.without_changing(step.output)
        assert transcripts.without_changing(output) == expected, (
            f"{step.command}: `python -m tests.transcripts {name}` writes what it prints"
        )
        assert status in (0, 1, 6), step.command


def test_the_librarys_example_runs(golden: Golden, capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs/reference/api.md").read_text()
    example = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
    store = golden("basic")
    example = example.replace("/data/rocketmq/store", str(store)).replace("orders", "TopicA")
    exec(compile(example, "api.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [str(number) for number in range(len(lines))]
    assert lines


def test_the_page_of_the_library_is_what_python_shows(tmp_path: Path) -> None:
    page = (ROOT / "docs/how-to/library.md").read_text()
    blocks = "".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL))
    lines = blocks.replace("/data/rocketmq/store", str(tmp_path / "store"))
    test = doctest.DocTestParser().get_doctest(lines, {}, "library.md", None, 0)
    told: list[str] = []
    with warnings.catch_warnings():
        doctest.DocTestRunner(verbose=False).run(test, out=told.append)
    assert "".join(told) == ""
    assert len(test.examples) > 20


def test_every_transcript_is_run() -> None:
    pages = [str(page.relative_to(ROOT)) for page in PAGES if "```console" in page.read_text()]
    assert pages == WITH_TRANSCRIPTS


def test_the_page_of_serve_has_every_request_that_is_answered() -> None:
    page = (ROOT / "docs/how-to/serve.md").read_text()
    told = re.findall(r"(\d+) `([A-Z_0-9]+)`", page)
    assert {int(code): name for code, name in told} == {
        code: RequestCode(code).name for code in [*PROCESSORS, *WRITERS]
    }


def test_the_documented_input_fields_and_exit_codes_are_the_programs() -> None:
    page = (ROOT / "docs/how-to/scripts.md").read_text()
    _, _, after = page.partition("## Putting many messages")
    cells = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", after, re.MULTILINE)
    assert set(re.findall(r"\w+", " ".join(cells))) == set(FIELDS)
    for text in (page, README):
        codes = {int(code) for code in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)}
        assert codes == set(EXIT_CODES)


def test_the_page_of_scripts_has_every_command_that_ends_with_1() -> None:
    page = (ROOT / "docs/how-to/scripts.md").read_text()
    _, _, after = page.partition("| command | exit status 1 |")
    table, _, _ = after.partition("\n\n")
    first_cells = " ".join(re.findall(r"^\| (`[^|]+`) \|", table, re.MULTILINE))
    told = {name.split(" --")[0] for name in re.findall(r"`([^`]+)`", first_cells)}
    ends_with_1 = {
        path.removeprefix("rmqctl ")
        for path, command in COMMANDS.items()
        if 1 in getattr(command, "exits", ())
    }
    assert {path for path in ends_with_1 if not told & {path, path.split()[0]}} == set()
    assert told <= ends_with_1 | {path.split()[0] for path in ends_with_1}


def test_the_readmes_transcript_fits_a_screen() -> None:
    (transcript,) = re.findall(r"```console\n(.*?)```", README, re.DOTALL)
    lines = transcript.splitlines()
    assert len(lines) <= 25 and max(map(len, lines)) <= transcripts.WIDTH


# --- rows ----------------------------------------------------------------------------------

SMALL_FILES = """\
mappedFileSizeCommitLog=2048
mappedFileSizeConsumeQueue=400
maxHashSlotNum=20
maxIndexNum=60
"""


def misfits(row: Row, fields: Iterable[Field]) -> list[Field]:
    """Declared fields whose value in a row has another type."""
    return [
        field
        for field in fields
        if field.name in row
        and not any(
            kind is Any or type(row[field.name]) is (get_origin(kind) or kind)
            for kind in field.types
        )
    ]


def printed_rows(root: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[tuple[str, Any]]:
    """``(command, row)`` of every command, on a store that is sound at first and then damaged."""
    (root / "broker.conf").write_text(SMALL_FILES)
    (root / "messages").write_text("".join(
        json.dumps({"topic": "orders", "keys": f"k{n}", "body": "x" * 99}) + "\n"
        for n in range(40)
    ))  # fmt: skip
    (root / "refused").write_text(json.dumps({"topic": "long" * 40, "body": ""}))
    store = root / "store"

    def rows(command: str, options: str = "", code: int = 0) -> Iterator[tuple[str, Any]]:
        line = f"{command} {options} --store {store} --broker-conf {root}/broker.conf"
        assert run([*shlex.split(line), "--format", "ndjson"]) == code, line
        for text in capsys.readouterr().out.splitlines():
            yield command, json.loads(text)

    first = "--topic orders --property UNIQ_KEY=u"
    yield from rows("put", f"--create {first} --keys k --tags t --body x")
    yield from rows("put", f"--topic {'long' * 40}", code=5)
    yield from rows("put", f"--from {root}/messages")
    yield from rows("put", f"--from {root}/messages --batch 9")
    yield from rows("put", f"--from {root}/refused", code=5)
    index_file = next((store / "index").iterdir()).name
    yield from rows("info")
    yield from rows("du", "--by topic,queue,tag,producer-host,day")
    yield from rows("du --disk")
    (store / "config").mkdir()
    (store / "config/consumerOffset.json").write_text('{"offsetTable":{"orders@g":{0:1}}}')
    yield from rows("config check")
    yield from rows("simulate-start", "--now 9999999999999")
    yield from rows("checkpoint show")
    yield from one_of_several_copies(rows, store)
    yield from rows("lint")
    yield from rows("corrupt", f"--kind bit-flip --kind crash --output {root}/damaged")
    yield from backed_up(root, rows, capsys)
    yield from rows("checkpoint compute")
    yield from rows("checkpoint set", "--index 0 --yes")
    topic = '{"readQueueNums":1,"writeQueueNums":1,"perm":6,"topicFilterType":"SINGLE_TAG"}'
    (store / "config/topics.json").write_text(f'{{"topicConfigTable":{{"empty":{topic}}}}}')
    (store / "config/subscriptionGroup.json").write_text('{"subscriptionGroupTable":{"idle":{}}}')
    yield from rows("topics")
    yield from rows("topics", "--no-bytes")
    yield from rows("groups")
    yield from rows("groups --queues")
    yield from rows("group set-offset", "g --topic orders --to end --dry-run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Server, "run", a_short_visit)
        options = f"--metrics-port 0 --access-log {root}/access"
        yield from rows("serve", f"--read-only --listen 127.0.0.1:0 {options}")
        for line in (root / "access").read_text().splitlines():
            yield "serve", json.loads(line)
    with live(root / "master") as master:
        master.put(3)
        there = f"127.0.0.1:{master.ha_port} --broker 127.0.0.1:{master.port}"
        assert run(shlex.split(f"replicate {there} --to {root}/copy --until-caught-up --json")) == 0
        yield from (("replicate", row) for row in json.loads(capsys.readouterr().out))
    (store / "config/topics.json").unlink()
    (store / "config/subscriptionGroup.json").unlink()
    yield from rows("clean", "--dry-run --manual --disk-ratio 10 --now 9999999999999")
    yield from stores_by_name(root, capsys)
    yield from popped(root, capsys)
    yield from uploaded(root, capsys)
    yield from converted(root, capsys)
    yield from in_batch_queues(root, capsys)
    yield from rows("queues")
    yield from rows("pull", "--topic orders --queue-id 0 --body-as hex")
    yield from rows("pull", "--topic orders --queue-id 0 --filter TRUE --body-as hex --decompress")
    yield from rows("pull --follow", "--topic orders --queue-id 0 --offset -1 --max-messages 1")
    yield from rows("message", "0")
    yield from rows("message", "0 7", code=1)
    yield from rows("message", "--unique-key none", code=1)
    yield from rows("find", "k7 --scan --body-as hex --decompress")
    yield from rows("offset", "--topic orders --queue-id 0 --time -1h --boundary ceil")
    yield from rows("offset", "--topic orders --queue-id 0 --time 0 --boundary floor", code=1)
    yield from rows("index query", "--topic orders --key k7")
    yield from rows("index query --raw", "--topic orders --key k7")
    yield from rows("index info")
    yield from rows("walk commitlog", "--body-as base64")
    yield from rows("walk commitlog --follow", "--limit 2")
    yield from rows("walk queue")
    yield from rows("walk index")
    yield from rows("dump record", "0")
    yield from rows("dump record --decompress", "0")
    yield from rows("dump unit", "orders 0 0")
    yield from rows("dump index-header", index_file)
    yield from rows("dump index-item", f"{index_file} 1")
    yield from rows("dump checkpoint")
    yield from rows("verify")
    yield from rows("verify", "--max-duration 0s")
    yield from rows("flush")
    yield from scheduled_and_half_messages(rows)
    yield from rows("rebuild --dry-run", "all --in-place")
    yield from rows("rebuild", "all --missing")
    (store / "abort").touch()
    yield from rows("flush", "--dry-run")
    (store / "abort").unlink()
    yield from salvaged(rows, store / "commitlog" / ("0" * 20), root)
    yield from a_changed_body(rows, store / "commitlog" / ("0" * 20))
    with (store / "commitlog" / ("0" * 20)).open("r+b") as log:
        log.write(b"\xff")
    with (store / "consumequeue/orders/0" / ("0" * 20)).open("r+b") as queue:
        queue.seek(40)
        queue.write(bytes(20))
    yield from rows("verify", code=1)
    (store / "commitlog" / "notes").touch()
    yield from rows("repair", f"--plan {root}/plan.json", code=1)
    (store / "commitlog" / "notes").unlink()
    # From the first file on, where the damage is, however long all of this took.
    yield from rows("checkpoint set", "--physic 0 --logics 0 --yes")
    (store / "abort").touch()
    checkpoint = (store / "checkpoint").read_bytes()
    # Else a start begins where the log was three seconds before, on a slow machine behind damage.
    (store / "checkpoint").write_bytes(bytes(len(checkpoint)))
    yield from rows("simulate-start", "--now 9999999999999", code=1)
    (store / "checkpoint").write_bytes(checkpoint)
    yield from rows("checkpoint compute", code=1)
    yield from rows("lint")
    (store / "abort").unlink()
    yield from rows("walk commitlog", code=1)
    yield from rows("walk queue", code=1)
    yield from rows("pull", "--topic orders --queue-id 0 --body-as hex", code=1)
    yield from rows("rebuild", f"all --output {root}/new", code=1)
    yield from a_fleet(root, capsys)


async def a_short_visit(server: Server) -> None:
    """A client asks something and commits an offset, and the server is stopped."""
    server.broker.served.offsets.commit("orders", "g", 0, 3)
    number = server.broker.connected("127.0.0.1:5", "127.0.0.1:6", 0)
    fields = {"AccessKey": "a", "topic": "orders", "consumerGroup": "g"}
    request = RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO, ext_fields=fields)
    server.do(server.broker.received(number, encode_frame(request), 0))
    server.stop()
    await RUN(server)


def stores_by_name(root: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[tuple[str, Any]]:
    """One with all that it may have, and one that is not there."""
    (root / "rmqctl").mkdir()
    conf = f'broker_conf = "{root}/broker.conf"'
    (root / "rmqctl" / "config.toml").write_text(
        f'[stores.a]\nstore = "{root}/store"\n{conf}\n[stores.b]\n{conf}\n'
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(root))
        assert run(["config", "stores", "--format", "ndjson"]) == 1
    for text in capsys.readouterr().out.splitlines():
        yield "config stores", json.loads(text)


def a_fleet(root: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[tuple[str, Any]]:
    """One store, as all three verbs have it, and what is no store."""
    for verb in ("verify", "stats", "du"):
        for place, code in ((root / "store", 1), (root / "messages", 3)):
            line = f"fleet {verb} --stores - --jobs 1 --format ndjson"
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(f"a={place}".encode())))
                assert run(shlex.split(line)) == code, line
            for text in capsys.readouterr().out.splitlines():
                yield f"fleet {verb}", json.loads(text)


def popped(root: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[tuple[str, Any]]:
    """Of a store that a broker of 5.3.3 has left with messages in flight."""
    store = golden_data.unpacked("pop", root, golden_data.LATER)
    conf = root / "pop.conf"
    said = json.loads((golden_data.LATER / "pop.json").read_text("utf-8"))
    conf.write_text("".join(f"{name}={value}\n" for name, value in said["config"].items()))
    line = f"pop ls --store {store} --broker-conf {conf} --now {said['now']} --format ndjson"
    assert run(shlex.split(line)) == 0
    for text in capsys.readouterr().out.splitlines():
        yield "pop ls", json.loads(text)


def uploaded(root: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[tuple[str, Any]]:
    """Of a store with tiered storage, and of one whose uploaded log is damaged."""
    store = golden_data.unpacked("tiered-killed", root, golden_data.LATER)

    def rows(words: str, code: int = 0) -> Iterator[tuple[str, Any]]:
        assert run(shlex.split(f"tiered {words} --store {store} --format ndjson")) == code
        for text in capsys.readouterr().out.splitlines():
            yield f"tiered {words.split(maxsplit=1)[0]}", json.loads(text)

    yield from rows("ls")
    yield from rows("query --topic orders --key fourth --body-as hex")
    yield from rows("verify")
    with next(store.glob("tiered/*/interop/orders/0/COMMIT_LOG/cfcd2084*")).open("r+b") as log:
        log.write(b"\xff" * 8)
    yield from rows("verify", 1)
    yield from rows("walk --body-as base64", 1)


def converted(root: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[tuple[str, Any]]:
    """The plan of what becomes of a store in RocksDB."""
    store = golden_data.unpacked("rocksdb", root, golden_data.LATER)
    line = f"rebuild queues --to-file-queues --in-place --dry-run --store {store} --format ndjson"
    assert run(shlex.split(line)) == 0
    for text in capsys.readouterr().out.splitlines():
        yield "rebuild --to-file-queues", json.loads(text)


def in_batch_queues(root: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[tuple[str, Any]]:
    """Queues of other kinds, of 5.x."""
    for name in ("batch-queues", "compaction"):
        store = golden_data.unpacked(name, root, golden_data.LATER)
        for command in ("queues", "walk queue"):
            assert run([*command.split(), "--store", str(store), "--format", "ndjson"]) == 0
            for text in capsys.readouterr().out.splitlines():
                yield command, json.loads(text)


def backed_up(
    root: Path, rows: Callable[..., Iterator[tuple[str, Any]]], capsys: pytest.CaptureFixture[str]
) -> Iterator[tuple[str, Any]]:
    """A backup that is sound, and then not any more."""
    yield from rows("backup create", f"--output {root}/full")
    more = f"--base {root}/full --output {root}/more.tar.zst --dry-run"
    yield from rows("backup create", more)
    damaged = root / "full" / "store" / "commitlog" / ("0" * 20)
    for line, code in (
        (f"backup ls {root}/full", 0),
        (f"restore {root}/full --output {root}/restored", 0),
        (f"backup verify {root}/full", 1),
    ):
        if code:
            damaged.write_bytes(b"y" + damaged.read_bytes()[1:])
        assert run([*line.split(), "--format", "ndjson"]) == code, line
        for text in capsys.readouterr().out.splitlines():
            name = "restore" if line.startswith("restore") else " ".join(line.split()[:2])
            yield name, json.loads(text)


def salvaged(
    rows: Callable[..., Iterator[tuple[str, Any]]], log: Path, root: Path
) -> Iterator[tuple[str, Any]]:
    """One record that can be put right, and one that cannot, as they were again afterwards."""
    sound = log.read_bytes()
    for position in (0, sound.index(b"x" * 99)):
        with log.open("r+b") as file:
            file.seek(position)
            file.write(b"\x7f")
    yield from rows("salvage", f"--output {root}/salvaged", code=1)
    yield from rows("diff", f"{root}/salvaged", code=1)
    log.write_bytes(sound)


def a_changed_body(
    rows: Callable[..., Iterator[tuple[str, Any]]], log: Path
) -> Iterator[tuple[str, Any]]:
    """Everything that shows the body of the first message, which is no longer what was stored."""
    with log.open("r+b") as file:
        file.seek(PREFIXES[0].size)
        file.write(b"y")
    yield from rows("pull", "--topic orders --queue-id 0 --body-as hex", code=1)
    follow = "--topic orders --queue-id 0 --body-as utf8 --max-messages 1"
    yield from rows("pull --follow", follow, code=1)
    yield from rows("message", "0 --body-as utf8", code=1)
    yield from rows("message", "--unique-key u --body-as hex", code=1)
    yield from rows("index query", "--topic orders --key k --body-as hex", code=1)
    keys = log.with_name("keys")
    keys.write_text("k\nnobody\n")
    many = f"{keys} --topic orders --body-as hex"
    yield from rows("index query --keys-from", many, code=1)
    keys.unlink()
    yield from rows("find", "k --body-as hex", code=1)
    yield from rows("walk commitlog", "--body-as hex", code=1)
    yield from rows("walk commitlog --follow", "--limit 1 --body-as hex", code=1)


def one_of_several_copies(
    rows: Callable[..., Iterator[tuple[str, Any]]], store: Path
) -> Iterator[tuple[str, Any]]:
    """What is told of a store of 5.x in controller mode, and of a member of a DLedger group."""
    files = {
        "epochFileCheckpoint": "1\n0\n1-0\n",
        "brokerIdentity": "cluster#broker#1",
        "dledger-n0/checkpoint": "endIndex=1\ncommittedIndex=0\n",
        "dledger-n0/currterm": "currTerm=2\n",
    }
    checkpoint = (store / "checkpoint").read_bytes()
    (store / "checkpoint").write_bytes(checkpoint[:24] + b"\0\0\0\0\0\0\0\1" * 3 + checkpoint[48:])
    (store / "dledger-n0/data").mkdir(parents=True)
    (store / "compaction").mkdir()
    for name, text in files.items():
        (store / name).write_text(text)
    yield from rows("info")
    for name in files:
        (store / name).unlink()
    for name in ("dledger-n0/data", "dledger-n0", "compaction"):
        (store / name).rmdir()
    yield from rows("checkpoint show")
    (store / "checkpoint").write_bytes(checkpoint)


def scheduled_and_half_messages(
    rows: Callable[..., Iterator[tuple[str, Any]]],
) -> Iterator[tuple[str, Any]]:
    """One delayed message that goes out, one that cannot; a half that is committed, and one not."""
    half = "--topic RMQ_SYS_TRANS_HALF_TOPIC --property REAL_TOPIC=t --property REAL_QID=0"
    yield from rows("put", "--topic orders --delay-level 1 --body x")
    yield from rows("put", half.replace("RMQ_SYS_TRANS_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX", 1))
    yield from rows("put", "--topic SCHEDULE_TOPIC_XXXX --property REAL_TOPIC=t")
    yield from rows("schedule ls")
    yield from rows("put", "--topic rmq_sys_wheel_timer --property TIMER_OUT_MS=1 --body x")
    yield from rows("timer ls")
    yield from rows("timer rebuild", "--dry-run", code=1)
    yield from rows("timer deliver", "--dry-run", code=1)
    yield from rows("schedule deliver", "--until 4102444800000", code=1)
    ((_, put),) = rows("put", f"{half} --property PGROUP=g --keys k")
    yield from rows("transaction ls")
    yield from rows("transaction commit", f"{put['wrote_offset']}")
    yield from rows("transaction rollback", f"{put['wrote_offset']}", code=1)


def test_rows_have_exactly_the_declared_fields(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    declared = {kind.heading: fields_of(kind.row) for kind in KINDS}
    seen: dict[str, set[str]] = {heading: set() for heading in declared}
    printers: dict[str, set[str]] = {heading: set() for heading in declared}
    for command, row in printed_rows(tmp_path, capsys):
        kind = row["type"]
        names = (f"{kind} ({command})", f"{kind} ({command.split()[0]})", kind)
        heading = next(name for name in names if name in declared)
        fields = declared[heading]
        expected = [f.name for f in fields if not f.is_optional or f.name in row]
        assert list(row) == expected, (command, heading)
        assert not misfits(row, fields), (command, heading)
        assert fields[0].meaning == f"`{kind}`", heading
        seen[heading] |= set(row)
        printers[heading].add(command)
    for kind in KINDS:
        heading, by = kind.heading, set(kind.printed_by)
        assert seen[heading] == {field.name for field in declared[heading]}, heading
        if by:
            plain = {
                re.sub(r" --(raw|follow|decompress|queues|keys-from)$", "", name)
                for name in printers[heading]
            }
            assert plain == by, heading


def test_tables_show_fields_that_rows_have() -> None:
    fields = {kind.heading: {f.name for f in fields_of(kind.row)} for kind in KINDS}
    chosen_ones: tuple[Mapping[str, Iterable[str]], ...] = (
        tables.TABLE_COLUMNS,
        tables.SPARE_COLUMNS,
        tables.NARROW_COLUMNS,
        pages.TITLES,
    )
    for chosen in chosen_ones:
        for row, columns in chosen.items():
            assert set(columns) <= fields[row], row


def test_every_command_that_installs_works_from_a_clone() -> None:
    """The project may be on no index; what it needs is on every one."""
    sources = [*PAGES, *(ROOT / "rmqctl").rglob("*.py")]
    told = {
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in sources
        for line in path.read_text().splitlines()
        if re.search(r"(pip|pipx|uv tool) install\b[^`]*\brmqctl\b(?!-|\.git)", line.split("#")[0])
    }
    assert told == set()


def test_the_site_has_every_page_and_its_links_lead_somewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Sphinx is given; `python3 dev.py docs` makes the site of it."""
    spec = importlib.util.spec_from_file_location("docs_build", ROOT / "docs" / "build.py")
    assert spec is not None and spec.loader is not None
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    monkeypatch.setattr(build, "SOURCES", tmp_path)
    build.lay_out()
    laid_out = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.md")}
    overview = (ROOT / "docs" / "README.md").read_text()
    listed = [page for _, pages in build.sections(overview) for page in pages]
    assert sorted([*listed, "index.md"]) == sorted(laid_out), "docs/README.md lists every page"
    for page in tmp_path.rglob("*.md"):
        test_relative_links_lead_somewhere(page)
    first = (tmp_path / "index.md").read_text()
    assert first.startswith("# rmqctl\n") and first.count("## Documentation") == 1
