"""What root makes in a store belongs to its owner: a broker of another user starts on it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from rmqctl.engine.files.durable import write_whole
from rmqctl.engine.files.owner import hand_over_tree, make_directories
from tests.test_cli.conftest import Cli

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can give files to another user"
)
#: User and group of the broker.
BROKER = 65_533, 65_532


def give(place: Path) -> None:
    for path in (place, *place.rglob("*")):
        os.chown(path, *BROKER)


def others(place: Path) -> list[Path]:
    """What belongs to anyone but the broker."""
    seen = {path: path.lstat() for path in (place, *place.rglob("*"))}
    return [path for path, status in seen.items() if (status.st_uid, status.st_gid) != BROKER]


@pytest.fixture
def store(cli: Cli, tmp_path: Path) -> Path:
    """A store of the broker's, in a directory of the broker's."""
    root = tmp_path / "store"
    lines = tmp_path / "lines"
    lines.write_text("".join(f'{{"topic": "T", "body": "{"x" * 90}"}}\n' for _ in range(9)))
    assert cli("put", "--create", "--from", str(lines), store=root).code == 0
    give(tmp_path)
    return root


@pytest.mark.parametrize(
    "line",
    [
        "put --topic new --body x",
        "put --topic T --body x --delay-level 3",
        "put --from HOME/lines",
        "rebuild all --in-place --yes",
        "rebuild queues --in-place --yes",
        "group set-offset g --topic T --to begin --new --yes",
        "salvage --output HOME/below/salvaged",
        "rebuild all --output HOME/rebuilt",
        "backup create --output HOME/backups",
        "export --to store --output HOME/exported",
        "repair --plan HOME/plan",
    ],
)
def test_what_root_makes_belongs_to_the_broker(line: str, cli: Cli, store: Path) -> None:
    done = cli(*line.replace("HOME", str(store.parent)).split(), store=store)
    assert done.code == 0, done.err
    assert others(store.parent) == []


def test_a_repair_and_a_restored_store_belong_to_the_broker(cli: Cli, store: Path) -> None:
    home = store.parent
    assert cli("backup", "create", "--output", home / "backup", store=store).code == 0
    for line in (
        "restore HOME/backup --output HOME/restored",
        "import --from HOME/lines --store HOME/new --input ndjson",
    ):
        done = cli(*line.replace("HOME", str(home)).split())
        assert done.code == 0, done.err
    (queue,) = (store / "consumequeue" / "T").iterdir()
    next(queue.iterdir()).unlink()
    for step in ("--plan", "--apply"):
        done = cli("repair", step, home / "plan", *(["--yes"] * (step == "--apply")), store=store)
        assert done.code == 0, done.err
    assert cli("verify", store=store).code == 0
    assert others(home) == []
    assert cli("repair", "--undo", "--yes", store=store).code == 0
    assert others(home) == []


def test_what_is_replaced_gives_its_owner(cli: Cli, store: Path) -> None:
    """The root of a store may be a mount point of root's."""
    os.chown(store, 0, 0)
    assert cli("rebuild", "all", "--in-place", "--yes", store=store).code == 0
    assert others(store / "consumequeue") == others(store / "index") == []


def test_a_file_that_is_replaced_gives_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    os.chown(path, *BROKER)
    write_whole(path, b"new")
    assert (path.read_bytes(), others(path)) == (b"new", [])


def test_where_nothing_can_be_given_away_it_stays(
    cli: Cli, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rootless containers have not each number, and some file systems no owners."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(os, "fchown", refuse)
    monkeypatch.setattr(os, "chown", refuse)
    for line in ("put --topic new --body x", "rebuild all --in-place --yes"):
        done = cli(*line.split(), store=store)
        assert done.code == 0, done.err
    assert cli("verify", store=store).code == 0


def test_no_link_is_followed(tmp_path: Path) -> None:
    outside, home = tmp_path / "outside", tmp_path / "home"
    outside.touch()
    built = home / "below" / "built"
    home.mkdir()
    os.chown(home, *BROKER)
    make_directories(built)
    (built / "link").symlink_to(outside)
    hand_over_tree(built, home)
    assert others(home) == []
    assert outside.stat().st_uid == 0
