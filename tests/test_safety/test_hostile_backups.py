"""Backups of anybody: a manifest and a tar never choose a path or an allocation, and whatever is
wrong with them is an error of rmqctl's that leaves nothing."""

from __future__ import annotations

import hashlib
import io
import json
import os
import random
import shutil
import tarfile
import tracemalloc
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from rmqctl.engine.messagestore import MessageStore
from rmqctl.errors import RmqctlError
from rmqctl.operations.backup import archive
from rmqctl.operations.backup.archive import Archive, ArchiveWriter
from rmqctl.operations.backup.check import Verification
from rmqctl.operations.backup.create import Wanted, create
from rmqctl.operations.backup.errors import BackupUnsound
from rmqctl.operations.backup.manifest import (
    MANIFEST,
    Entry,
    Head,
    Manifest,
    read_manifest,
    write_lines,
)
from rmqctl.operations.backup.restore import plan_restore, restore
from tests.seeds import times
from tests.test_safety.support import Clock, message, small_config, tree

zstandard = pytest.importorskip("zstandard")
CONFIG = small_config()
Change = Callable[[dict[str, Any]], object]


@pytest.fixture(scope="module")
def backups(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a ``store`` and its backups ``full`` and ``full.tar.zst``."""
    base = tmp_path_factory.mktemp("backups")
    with MessageStore(base / "store", CONFIG, writable=True, create=True, clock=Clock()) as opened:
        opened.put_messages([message(number) for number in range(300)])
    for kind in ("full", "full.tar.zst"):
        create(Wanted(base / "store", CONFIG, str(base / kind)))
    return base


def refused(place: Path, output: Path) -> str:
    """Restoring is refused, and nothing is made; why."""
    with pytest.raises(BackupUnsound) as error:
        restore(plan_restore([str(place)], output))
    assert not output.exists() and not list(output.parent.glob("*rmqctl-new*"))
    return str(error.value)


def set_to(**values: Any) -> Change:
    return lambda row: row.update(values)


LONG = "x" * 300
#: What is said of a manifest, one of whose lines was changed: which (by type), how, and why not.
LINES: list[tuple[str, Change, str]] = [
    *(
        ("file", set_to(path=path), "lead out of the store")
        for path in (
            *("../x", "/etc/x", "a/../../x", "", ".", "a//b", "a/", "a\0b", LONG, "a/" * 3000),
            *(None, 7, ["a"], "\ud83d"),
        )
    ),
    ("directory", set_to(path="../x"), "lead out of the store"),
    ("file", set_to(size=-1), "size that cannot be"),
    ("file", set_to(size=1 << 60), "size that cannot be"),
    ("file", set_to(size=True), "size that cannot be"),
    ("file", set_to(size="7"), "size that cannot be"),
    ("file", set_to(data_end=1 << 40), "data_end that cannot be"),
    ("file", set_to(stored_from=1 << 40), "stored_from that cannot be"),
    ("file", set_to(stored_bytes=1 << 40), "stored_bytes that cannot be"),
    ("file", set_to(mode=0o4755), "mode that cannot be"),
    ("file", set_to(modified_timestamp=1 << 62), "modified_timestamp that cannot be"),
    ("file", set_to(sha256="x"), "hash is none"),
    ("file", set_to(sha256=7), "without a hash"),
    ("file", set_to(stored_sha256="A" * 64), "hash is none"),
    ("file", set_to(type="link"), "unknown type"),
    ("backup", set_to(format=2), "is of format"),
    ("backup", set_to(format="\x1b[31m"), "is of format"),
    ("backup", set_to(base="../x"), "something else than a backup"),
    ("backup", set_to(physical_offset=-1), "physical_offset that cannot be"),
    ("backup", set_to(is_live="yes"), "does not tell of its backup"),
    ("backup", set_to(type="file"), "does not begin"),
    ("end", set_to(files=1), "counts other files"),
]


@pytest.mark.parametrize("number", range(len(LINES)))
def test_a_line_of_the_manifest(backups: Path, tmp_path: Path, number: int) -> None:
    kind, change, why = LINES[number]
    rows = [json.loads(line) for line in (backups / "full" / MANIFEST).open()]
    rows.insert(-1, {"type": "directory", "path": "empty"})
    rows[-1]["directories"] = 1
    change(next(row for row in rows if row["type"] == kind))
    changed = tmp_path / "changed"
    changed.mkdir()
    (changed / MANIFEST).write_text("".join(json.dumps(row) + "\n" for row in rows))
    (changed / "store").symlink_to(backups / "full" / "store")
    assert why in refused(changed, tmp_path / "new")


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (lambda lines: [], "is empty"),
        (lambda lines: lines[:-1], "is cut off"),
        (lambda lines: [*lines, lines[-1]], "behind its end"),
        (lambda lines: [*lines[:2], *lines[1:]], "a path twice"),
        (lambda lines: [lines[0], b"{" * 60_000], "no JSON"),
        (lambda lines: [lines[0], b"[" * 60_000 + b"]" * 5000 + b"\n"], "no JSON"),
        (lambda lines: [lines[0], b"\xff\n"], "no JSON"),
        (lambda lines: [lines[0], b"7\n"], "no object"),
        (lambda lines: [lines[0], b" " * 70_000], "longer than any"),
    ],
)
def test_lines_of_a_manifest(
    backups: Path, made: Callable[[list[bytes]], list[bytes]], why: str
) -> None:
    lines = (backups / "full" / MANIFEST).read_bytes().splitlines(keepends=True)
    with pytest.raises(BackupUnsound, match=why):
        read_manifest(io.BytesIO(b"".join(made(lines))), "it")


def test_a_file_in_place_of_a_directory() -> None:
    empty = hashlib.sha256().hexdigest()
    for one, other in (("a", "a/b"), ("a/b", "a"), ("a/b/c", "a/b"), ("x/a", "x/a/b/c")):
        manifest = Manifest(Head(1, None, None, None, None, False, ""))
        for path in (one, other):
            manifest.files[path] = Entry(path, 0, 0, empty, 0, 0, empty, 0, 0)
        with pytest.raises(BackupUnsound, match="in place of a directory"):
            read_manifest(io.BytesIO(b"".join(write_lines(manifest))), "it")
        del manifest.files[one], manifest.files[other]
        manifest.files["d"] = Entry("d", 0, 0, empty, 0, 0, empty, 0, 0)
        manifest.directories = ["d"]
        with pytest.raises(BackupUnsound, match="in place of a directory"):
            read_manifest(io.BytesIO(b"".join(write_lines(manifest))), "it")


def written(path: Path, manifest: Manifest, data: bytes) -> Path:
    """An archive with anybody's members, and the manifest of a sound one."""
    with path.open("wb") as file:
        writer = ArchiveWriter(file)
        writer._frame.write(data)
        writer.finish(manifest)
    return path


def member(name: str, data: bytes = b"", **fields: Any) -> bytes:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in fields.items():
        setattr(info, key, value)
    return info.tobuf(tarfile.PAX_FORMAT) + data + bytes(-len(data) % 512)


def sparse(name: str, size: int, holes: bytes, data: bytes = b"") -> bytes:
    holes += bytes(-len(holes) % 512)
    pax = {
        "GNU.sparse.major": "1",
        "GNU.sparse.minor": "0",
        "GNU.sparse.name": name,
        "GNU.sparse.realsize": str(size),
    }
    return member(name, holes + data, pax_headers=pax)


CHECKPOINT = "store/checkpoint"
#: Members in place of a sound backup's, and what is said of them.
MEMBERS: list[tuple[bytes, str]] = [
    (member("store/../../x", b"x"), "does not name"),
    (member("/etc/x", b"x"), "does not name"),
    (member("store/x", b"x"), "does not name"),
    (member(CHECKPOINT, type=tarfile.SYMTYPE, linkname="/etc/passwd"), "no plain file"),
    (member(CHECKPOINT, type=tarfile.LNKTYPE, linkname="/etc/passwd"), "no plain file"),
    (member(CHECKPOINT, type=tarfile.CHRTYPE), "no plain file"),
    (member(CHECKPOINT, type=tarfile.FIFOTYPE), "no plain file"),
    (member(CHECKPOINT, type=tarfile.DIRTYPE), "no plain file"),
    (member(CHECKPOINT, b"short"), "not as long"),
    (member(CHECKPOINT, bytes(5000)), "not as long"),
    (member(CHECKPOINT, bytes(4096)), "not as long"),
    (sparse(CHECKPOINT, 4096, b"1\n0\n24\n", b"x" * 23), "do not add up"),
    (sparse(CHECKPOINT, 4096, b"2\n8\n8\n0\n8\n", b"x" * 16), "in disorder"),
    (sparse(CHECKPOINT, 4096, b"1\n4090\n24\n", b"x" * 24), "in disorder"),
    (sparse(CHECKPOINT, 1 << 40, b"1\n0\n24\n", b"x" * 24), "not as long"),
    (sparse(CHECKPOINT, 4096, b"99999999999999\n", b"1\n" * 9999), "is no number"),
    (sparse(CHECKPOINT, 4096, b"-1\n"), "is no number"),
    (sparse(CHECKPOINT, 4096, b"9" * 512), "shorter than its map"),
    (sparse(CHECKPOINT, 4096, b"", b""), "shorter than its map"),
    (member(CHECKPOINT, pax_headers={"GNU.sparse.realsize": "1"}), "unknown kind"),
    (member("x", type=tarfile.XHDTYPE, size=1 << 30), "too long"),
    (member("x", b"9 a\n" * 9, type=tarfile.XHDTYPE), "cannot be read"),
    (member("x", b"0 =\n" * 9, type=tarfile.XHDTYPE), "cannot be read"),
    (member("x", b"x" * 100, type=tarfile.XHDTYPE), "is no number"),
    (b"x" * 512, "has no header"),
    (bytes(1024), "holds nothing of"),
    (b"", "holds nothing of"),
]


@pytest.mark.parametrize("number", range(len(MEMBERS)))
def test_a_member_of_the_archive(backups: Path, tmp_path: Path, number: int) -> None:
    data, why = MEMBERS[number]
    manifest = Archive(str(backups / "full.tar.zst")).manifest
    place = written(tmp_path / "a.tar.zst", manifest, data)
    assert why in refused(place, tmp_path / "new")
    assert [row["what"] for row in Verification([str(place)]).rows()]


def test_no_length_is_an_allocation(backups: Path, tmp_path: Path) -> None:
    """A header of gigabytes, a map of millions of holes, a manifest without an end: some megabytes
    are held, however well they compress."""
    manifest = Archive(str(backups / "full.tar.zst")).manifest
    bombs = [
        sparse(CHECKPOINT, 4096, b"9999999\n" + b"0\n" * (2 << 20)),
        member(MANIFEST, b" " * (16 << 20)),
    ]
    tracemalloc.start()
    try:
        for number, bomb in enumerate(bombs):
            place = written(tmp_path / f"{number}.tar.zst", manifest, bomb)
            if number:
                point_to_start(place)
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            refused(place, tmp_path / "new")
            _, peak = tracemalloc.get_traced_memory()
            assert peak - before < 16 << 20, number
    finally:
        tracemalloc.stop()


def point_to_start(place: Path) -> None:
    """Has the end of an archive say that its manifest is the first member."""
    data = place.read_bytes()[: -archive._FOOTER.size]
    footer = archive._FOOTER.pack(archive._SKIPPABLE, archive._FOOTER.size - 8, archive._OURS, 0)
    place.write_bytes(data + footer)


def test_a_frame_that_wants_to_look_back_too_far(backups: Path, tmp_path: Path) -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=30, write_content_size=0)
    place = tmp_path / "wide.tar.zst"
    with place.open("wb") as file:
        with zstandard.ZstdCompressor(compression_params=parameters).stream_writer(
            file, closefd=False
        ) as writer:
            writer.write(member(MANIFEST, b"x" * 600) + bytes(1024))
        file.write(bytes(archive._FOOTER.size))
    point_to_start(place)
    assert "cannot be decompressed" in refused(place, tmp_path / "new")


def test_a_directory_whose_files_are_links_and_pipes(backups: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"s" * 4096)
    changed = tmp_path / "changed"
    for make in (
        lambda path: path.symlink_to(secret),
        lambda path: path.symlink_to(tmp_path / "none"),
        os.mkfifo,
        lambda path: path.mkdir(),
        lambda path: None,
    ):
        with ExitStack() as undo:
            changed.mkdir()
            undo.callback(lambda: shutil.rmtree(changed))
            (changed / MANIFEST).write_bytes((backups / "full" / MANIFEST).read_bytes())
            (changed / "store").mkdir()
            for path in (backups / "full" / "store").iterdir():
                if path.name != "checkpoint":
                    (changed / "store" / path.name).symlink_to(path)
            make(changed / "store" / "checkpoint")
            with pytest.raises(RmqctlError):
                restore(plan_restore([str(changed)], tmp_path / "new"))
            assert not (tmp_path / "new").exists()


def test_a_chain_of_others_makes_no_store(backups: Path, tmp_path: Path) -> None:
    """A backup that says it goes on from another one, and from what that does not have."""
    full = Archive(str(backups / "full.tar.zst")).manifest
    name = next(iter(full.files))
    head = Head(2, full.id, None, None, None, False, "")
    entry = full.files[name]._replace(stored_from=1, data_end=1, stored_bytes=0)
    other = Manifest(head, {name: entry})
    with (tmp_path / "b.tar.zst").open("wb") as file:
        ArchiveWriter(file).finish(other)
    with pytest.raises(RmqctlError, match="another content"):
        plan_restore([str(backups / "full.tar.zst"), str(tmp_path / "b.tar.zst")], tmp_path / "n")


def test_bytes_that_change_anywhere_are_noticed_or_do_not_matter(
    backups: Path, tmp_path: Path, chance: random.Random
) -> None:
    """Flipped, cut, doubled: an error of rmqctl's, or the very store."""
    sound = (backups / "full.tar.zst").read_bytes()
    wanted = {name: data for name, data in tree(backups / "store").items() if name != "lock"}
    place, new = tmp_path / "a.tar.zst", tmp_path / "new"
    ended = {"refused": 0, "restored": 0}
    for _ in range(times(80)):
        data = bytearray(sound)
        at = chance.randrange(len(data))
        how = chance.randrange(4)
        if how == 0:
            data[at] ^= 1 << chance.randrange(8)
        elif how == 1:
            del data[at:]
        elif how == 2:
            del data[at : at + chance.randrange(1, 2000)]
        else:
            data[at:at] = data[at : at + chance.randrange(1, 2000)]
        place.write_bytes(data)
        try:
            restore(plan_restore([str(place)], new))
        except RmqctlError:
            ended["refused"] += 1
            assert not new.exists()
            continue
        ended["restored"] += 1
        assert tree(new) == wanted
        new.rename(tmp_path / f"restored-{ended['restored']}")
    assert ended["refused"] > times(80) // 2


def test_a_manifest_is_read_as_it_was_written(backups: Path) -> None:
    manifest = Archive(str(backups / "full.tar.zst")).manifest
    again = read_manifest(io.BytesIO(b"".join(write_lines(manifest))), "it")
    assert again == manifest and len(again.id) == 64
