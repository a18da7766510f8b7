"""What is written beside the rows lies outside of every store that a command is told of: a broker
does not start on a log with a strange file in it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.test_cli.conftest import BROKER_CONF, Cli, state

#: Command lines that write to PLACE and are told of STORE.
LINES = [
    "stats --report PLACE --store STORE",
    "stats --report PLACE --store OTHER --store STORE",
    "fleet verify --stores STORE --report PLACE",
    "fleet stats --stores OTHER --stores STORE --state PLACE",
    "fleet du --stores STORE --state PLACE --report HTML",
    "export --format ndjson --output PLACE --store STORE",
    "export --format csv --output file://PLACE --store OTHER --store STORE",
    "export --output PLACE --store STORE",
    "export --output PLACE --store STORE --master local[1]",
    "export --format store --output PLACE --store STORE",
    "verify --report PLACE --store STORE",
    "verify --master local[1] --output PLACE --store STORE",
    "simulate-start --report PLACE --store STORE",
    "sql --output PLACE --store STORE SELECT",
    "repair --plan PLACE --store STORE",
    "rebuild all --output PLACE --store STORE",
    "salvage --output PLACE --store STORE",
    "salvage --output PLACE --store OTHER --from STORE",
    "corrupt --output PLACE --store STORE",
    "serve --access-log PLACE --store STORE",
    "backup create --output PLACE --store STORE",
    "backup --output PLACE --store STORE --dry-run",
]


@pytest.mark.parametrize("line", LINES)
def test_nothing_is_written_into_a_store(
    line: str, cli: Cli, store: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = tmp_path_factory.getbasetemp() / "store-of-60"
    (tmp_path / "link").symlink_to(store)
    (store / "commitlog").rename(tmp_path / "disk")
    (store / "commitlog").symlink_to(tmp_path / "disk")
    before = state(tmp_path)
    words = {"OTHER": str(other), "STORE": str(store), "HTML": str(tmp_path / "h.html")}
    for place in (store / "commitlog" / "x", store / "x", tmp_path / "link/x", tmp_path / "disk/x"):
        put = words | {"PLACE": str(place), "file://PLACE": f"file://{place}"}
        done = cli(*(put.get(word, word) for word in line.split()))
        assert done.code == 2 and done.out == "", done
        assert "lies in the store" in done.err and "outside" in done.err
        assert str(store) in done.err.replace("\n", " ")
    assert state(tmp_path) == before and not list(tmp_path.glob("*.html"))


@pytest.mark.parametrize(
    "line", [*(one for one in LINES if "file://" not in one), "restore STORE --output PLACE"]
)
def test_a_dash_becomes_no_file(
    line: str,
    cli: Cli,
    store: Path,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Elsewhere it is standard output, where the rows are."""
    other = tmp_path_factory.getbasetemp() / "store-of-60"
    words = {"OTHER": str(other), "STORE": str(store), "HTML": str(tmp_path / "h.html")}
    monkeypatch.chdir(tmp_path)
    before = sorted(os.listdir(tmp_path))
    done = cli(*((words | {"PLACE": "-"}).get(word, word) for word in line.split()))
    assert done.code == 2 and done.out == "", done
    assert "standard output" in done.err and "./-" in done.err
    assert sorted(os.listdir(tmp_path)) == before


@pytest.mark.parametrize("line", ["stats --report PLACE", "export --format ndjson --output PLACE"])
def test_nor_into_the_directories_of_its_log(
    line: str, cli: Cli, store: Path, tmp_path: Path
) -> None:
    """``storePathCommitLog`` may name several, which lie anywhere."""
    (store / "commitlog").rename(tmp_path / "disk")
    (tmp_path / "empty").mkdir()
    conf = tmp_path / "broker.conf"
    conf.write_text(f"{BROKER_CONF}storePathCommitLog={tmp_path / 'disk'},{tmp_path / 'empty'}\n")
    for place in (tmp_path / "disk" / "x", tmp_path / "empty" / "x"):
        words = [str(place) if word == "PLACE" else word for word in line.split()]
        done = cli(*words, "--store", store, "--broker-conf", conf)
        assert done.code == 2 and "lies in the store" in done.err, done
    assert os.listdir(tmp_path / "empty") == []


def test_a_fleet_writes_beside_a_store_that_cannot_be_read(
    cli: Cli, store: Path, tmp_path: Path
) -> None:
    """A broker.conf that is none is an error in its store's row, and no end of the run."""
    (tmp_path / "broker.conf").write_text("maxIndexNum=x\n")
    done = cli("fleet", "du", "--stores", store, "--report", tmp_path / "fleet.html")
    assert done.code == 2 and "line 1" in done.out and (tmp_path / "fleet.html").exists()
