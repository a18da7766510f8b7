"""Access to the golden stores and the damage cases: files, settings, and RocketMQ's answers.

Nothing here interprets the bytes of a store. What RocketMQ says of them is in the expected rows.
"""

from __future__ import annotations

import fcntl
import json
import lzma
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from rmqctl.engine.settings.storeconfig import MessageStoreConfig, parse_broker_conf

GOLDEN = Path(__file__).parent / "golden"
#: Stores of brokers of 5.3.3, each with a JSON file that has its broker's answers.
LATER = GOLDEN / "later"
INDEX: dict[str, Any] = json.loads((GOLDEN / "index.json").read_text("utf-8"))
#: The stores whose log a DLedger group keeps. rmqctl only reads them.
DLEDGER_STORES: list[str] = sorted(
    name for name, one in INDEX["stores"].items() if "enableDLegerCommitLog" in one["config"]
)
STORES: list[str] = sorted(INDEX["stores"].keys() - set(DLEDGER_STORES))
#: Stores of later versions than 4.9.3.
LATER_STORES: list[str] = sorted(INDEX["later"])
DAMAGE_CASES: list[str] = sorted(INDEX["damage"])
#: Damage to timers and to logs of DLedger groups, with the answers of 5.3.3.
LATER_DAMAGE_CASES: list[str] = sorted(path.stem for path in (LATER / "damage").glob("*.json"))

ExpectedRow = dict[str, Any]


def broker_conf_text(name: str) -> str:
    """A ``broker.conf`` with the settings with which a golden store was written."""
    part = "later" if name in LATER_STORES else "stores"
    settings: dict[str, Any] = INDEX[part][name]["config"]
    lines = (
        f"{key}={str(value).lower() if isinstance(value, bool) else value}"
        for key, value in settings.items()
    )
    return "\n".join(lines) + "\n"


def broker_conf(name: str) -> MessageStoreConfig:
    """The same, parsed."""
    return parse_broker_conf(broker_conf_text(name))


@cache
def expected(name: str) -> dict[str, list[ExpectedRow]]:
    """The engine's answers for a golden store: rows by ``kind``, in the engine's order."""
    rows: dict[str, list[ExpectedRow]] = {}
    with lzma.open(GOLDEN / f"{name}.expected.ndjson.xz", "rt", encoding="utf-8") as lines:
        for line in lines:
            row: ExpectedRow = json.loads(line)
            rows.setdefault(row["kind"], []).append(row)
    return rows


def unpacked(name: str, directory: Path, archives: Path = GOLDEN) -> Path:
    """The golden store, unpacked into ``directory``, only once even if several processes ask for
    it.

    Holes are kept. Tests must not write there: those that change something make a copy.
    """
    store, done = directory / name, directory / f"{name}.done"
    with (directory / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            with tarfile.open(archives / f"{name}.tar.xz") as archive:
                if hasattr(tarfile, "data_filter"):  # Python 3.11.4 and later
                    archive.extractall(directory, filter="data")
                else:
                    archive.extractall(directory)
            done.touch()
    return store


def copy_tree(source: Path, target: Path) -> Path:
    """A writable copy that keeps holes (``shutil.copytree`` would fill them)."""
    command = ["cp", "-r", "--sparse=always", "--no-preserve=mode", str(source), str(target)]
    subprocess.run(command, check=True)
    return target


def forced(root: Path) -> Path:
    """Forces a store to disk: before that, some file systems have not decided how many blocks its
    files take."""
    for path in root.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)
    return root


def damage_case(case: str) -> dict[str, Any]:
    """``base``, ``ops``, ``what`` and ``engine`` of a damage case."""
    loaded: dict[str, Any] = json.loads((GOLDEN / "damage" / f"{case}.json").read_text("utf-8"))
    return loaded


def later_damage_case(case: str) -> dict[str, Any]:
    """The same for a case of :data:`LATER_DAMAGE_CASES`."""
    loaded: dict[str, Any] = json.loads((LATER / "damage" / f"{case}.json").read_text("utf-8"))
    return loaded


def apply_damage(root: Path, ops: list[dict[str, Any]]) -> None:
    """Applies the operations of a damage case to a copy of its base store.

    The cases name only files. Directories that become empty are removed as well.
    """
    for op in ops:
        path = root / op["path"]
        if op["op"] == "write":
            with path.open("r+b") as file:
                file.seek(op["position"])
                file.write(bytes.fromhex(op["hex"]))
        elif op["op"] == "truncate":
            os.truncate(path, op["length"])
        elif op["op"] == "create":
            path.write_bytes(bytes.fromhex(op["hex"]))
        elif op["op"] == "mkdir":
            path.mkdir()
        elif op["op"] == "delete":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        else:
            raise ValueError(f"unknown operation {op['op']}")
    deleted = {root / op["path"] for op in ops if op["op"] == "delete"}
    for parent in sorted({up for path in deleted for up in path.parents}, reverse=True):
        if parent.is_relative_to(root) and parent.name != "commitlog" and not any(parent.iterdir()):
            parent.rmdir()


def data_extents(path: Path) -> Iterator[tuple[int, bytes]]:
    """``(position, bytes)`` of the parts of a file that are not holes."""
    with path.open("rb") as file:
        end = os.fstat(file.fileno()).st_size
        position = 0
        while position < end:
            try:
                position = os.lseek(file.fileno(), position, os.SEEK_DATA)
            except OSError:
                return
            hole = os.lseek(file.fileno(), position, os.SEEK_HOLE)
            yield position, os.pread(file.fileno(), hole - position, position)
            position = hole


def content(path: Path) -> tuple[int, dict[int, bytes]]:
    """The length of a file, and its pages that are not zeros, by number. It is equal for equal
    bytes, wherever the holes are, and small for a sparse file of any length."""
    page = 4096
    pages: dict[int, bytes] = {}
    for start, data in data_extents(path):
        assert start % page == 0, "a hole that begins within a page"
        for at in range(0, len(data), page):
            piece = data[at : at + page].rstrip(b"\0")
            if piece:
                pages[(start + at) // page] = piece
    return path.stat().st_size, pages


def tree_content(root: Path) -> dict[str, tuple[int, dict[int, bytes]]]:
    """:func:`content` of every file below ``root``, by relative path."""
    return {
        str(path.relative_to(root)): content(path)
        for path in sorted(root.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


def state(root: Path) -> dict[str, tuple[int, ...]]:
    """Kind, length, times and links of every entry, which show whether anything was touched."""
    entries = [root, *root.rglob("*")]
    found = {str(path.relative_to(root)): path.lstat() for path in entries}
    return {
        name: (s.st_mode, s.st_ino, s.st_nlink, s.st_size, s.st_mtime_ns, s.st_ctime_ns)
        for name, s in found.items()
    }


def make_one_of_5_4(root: Path) -> None:
    """Makes a store one on which a broker of 5.4 has run: its database is empty."""
    (root / "commitlog").mkdir(parents=True, exist_ok=True)
    (root / "rocksdbstore").mkdir(exist_ok=True)
    for name in ("CURRENT", "MANIFEST-000005", "000004.log"):
        (root / "rocksdbstore" / name).touch()


def index_contents(directory: Path) -> list[tuple[int, dict[int, bytes]]]:
    """:func:`content` of the index files in order, without their names, which are times of
    creation."""
    return [content(path) for path in sorted(directory.iterdir())]
