"""The journal of a repair: moves, which can be made and taken back.

A repair first builds all that is new in ``rmqctl-repair/new/``. The store is unchanged until the
journal is written. Then old files move to ``rmqctl-repair/old/`` and new ones into their places, by
one rename after the other. Which of the three places hold something tells how far a move has come,
so after a kill at any moment it can be completed or taken back. Bytes of the log that become zeros
are kept in ``old/``, too. At the end one rename makes the directory a backup
(``docs/decisions/0021-a-repair-is-moves-between-three-places.md``).
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple

from formats.constants import INT_MAX, LONG_MAX
from rmqctl.engine.files import durable, paths, writing
from rmqctl.engine.files.owner import make_directories
from rmqctl.engine.files.unfinished import JOURNAL, KEPT_BY_REPAIR, REPAIR
from rmqctl.engine.state import brokerjson
from rmqctl.errors import CannotWrite, ConfigFileUnreadable
from rmqctl.operations.mend.swap import refuse_links
from rmqctl.operations.repair import inplace
from rmqctl.operations.repair.errors import RepairCutOff, RepairOvertaken
from rmqctl.operations.repair.fingerprint import Fingerprint, fingerprint
from rmqctl.operations.repair.model import Step
from rmqctl.operations.repair.planfile import NoName, check_texts, is_below

NEW, OLD, PLAN = "new", "old", "plan.json"
_IS_BACKUP = re.compile(re.escape(KEPT_BY_REPAIR) + r"[0-9]{20}")
_IS_TAIL = re.compile(r"\.from-[0-9]+$")
_MOST_NUMBER = 10**20 - 1


class Move(NamedTuple):
    """The change of one path of the store: ``old`` is the fingerprint of what is there before,
    ``new`` of what is there afterwards; None: nothing. With a ``length`` the file itself is changed
    instead: so many of its bytes become zeros, or it grows by so many.

    :param steps: numbers of the steps that need it.
    :param made: directories that are made for it.
    :param grows: the file gets ``length`` zeros at its end, which is at ``position``.
    :param late: the new file comes after all other moves, and goes before they are taken back.
    """

    path: str
    steps: tuple[int, ...]
    old: Fingerprint | None
    new: Fingerprint | None
    made: tuple[str, ...] = ()
    position: int = 0
    length: int = 0
    late: bool = False
    grows: bool = False


class Journal(NamedTuple):
    """All moves in their order. ``steps`` are the plan's, for rows; ``log`` is the fingerprint of
    its log; ``backup`` is the name that the directory gets at the end."""

    backup: str
    log: Fingerprint
    steps: list[dict[str, Any]]
    moves: tuple[Move, ...]


def write_journal(root: Path, journal: Journal) -> None:
    """Writes the journal. After this the store may be changed. Errors as of
    :func:`~rmqctl.engine.files.durable.write_whole`."""
    content = journal._asdict() | {"version": 1, "moves": [one._asdict() for one in journal.moves]}
    data = json.dumps(content, indent=1).encode()
    if len(data) > brokerjson.MAX_BYTES:
        reason = "the plan has too many steps at once: leave some out, and make another plan then"
        raise CannotWrite(path=str(root / REPAIR / JOURNAL), reason=reason)
    durable.write_whole(root / REPAIR / JOURNAL, data)


def read_journal(directory: Path) -> Journal:
    """The journal in the directory of a repair or a backup.

    :raises RepairOvertaken: rmqctl has not written it, or not as it is.
    """
    try:
        value = brokerjson.read(directory / JOURNAL)
        check_texts(value)
        moves = tuple(
            Move(**one | {"steps": tuple(one["steps"]), "made": tuple(one["made"])})
            for one in value["moves"]
        )
        journal = Journal(value["backup"], value["log"], value["steps"], moves)
        is_ours = value["version"] == 1 and _IS_BACKUP.fullmatch(journal.backup)
        if is_ours and _has_fields(journal) and all(map(_is_of_repair, moves)):
            return journal
        reason = "its journal names what rmqctl never touches, or is of another version"
    except (ConfigFileUnreadable, NoName, KeyError, TypeError, ValueError):
        reason = "its journal was cut off, or changed"
    raise RepairOvertaken(verb="ended or undone", reason=reason, kept=str(directory))


def _has_fields(journal: Journal) -> bool:
    """Whether steps and log have what rows and comparisons need; may raise KeyError, TypeError."""
    texts = [journal.log["sha256"], journal.log["behind"]]
    # A log without files begins at -1.
    numbers = [journal.log["min_offset"] + 1, journal.log["end_offset"]]
    for step in journal.steps:
        texts += [step["action"], step["changes"], step["sacrifices"], *step["mends"]]
        numbers.append(step["step"])
        texts.append(Step.of(step).path)
    return all(type(one) is str for one in texts) and all(map(_is_whole, numbers))


def _is_whole(value: object) -> bool:
    return type(value) is int and 0 <= value <= LONG_MAX


def _is_of_repair(move: Move) -> bool:
    """Whether a repair can have made a move: it never puts anything new into the log."""
    numbers = (*move.steps, move.position, move.length)
    if not all(map(_is_whole, numbers)) or not move.steps:
        return False
    if not all(type(one) is str and is_below(one) for one in (move.path, *move.made)):
        return False
    if not {type(move.old), type(move.new)} <= {dict, NoneType} or {
        type(move.late),
        type(move.grows),
    } != {bool}:
        return False
    first, *rest = move.path.split("/")
    if first == paths.COMMIT_LOG:
        is_file = move.position + move.length <= INT_MAX
        return bool(rest) and move.new is None and not move.made and (is_file or not move.grows)
    rooms = (paths.CONSUME_QUEUE, paths.CONSUME_QUEUE_EXT, paths.INDEX, brokerjson.CONFIG)
    files = (paths.CHECKPOINT, paths.TIMER_WHEEL)
    is_ours = first in (*rooms, paths.TIMER_LOG) or move.path in files
    return not move.length and not move.grows and is_ours


class Mover:
    """Makes the moves of a journal, under the store's lock."""

    def __init__(self, root: Path, directory: Path, journal: Journal) -> None:
        """:param directory: the repair's. For :meth:`problem` it may be the backup it became."""
        self._root = root
        self._directory = directory
        self._journal = journal

    # --- looking -------------------------------------------------------------------------

    def problem(self) -> str | None:
        """What has been changed by another program since, in words; None: nothing has."""
        for move in self._journal.moves:
            why = self._change_problem(move) if move.length else self._move_problem(move)
            if why is not None:
                return why
        return None

    def _move_problem(self, move: Move) -> str | None:
        target, old, new = self._places(move)
        is_old_kept = move.old is not None and os.path.lexists(old)
        is_new_placed = move.new is not None and not os.path.lexists(new)
        if is_old_kept and fingerprint(old) != move.old:
            return f"what it has kept of {move.path} is not what stood there"
        expected = move.new if is_new_placed else None if is_old_kept else move.old
        if fingerprint(target) == expected or (expected is None and self._is_made(move.path)):
            return None
        return f"{move.path} was changed meanwhile"

    def _is_made(self, path: str) -> bool:
        """Whether a path is a directory that was made for moves, and holds nothing else."""
        moves = self._journal.moves
        if not any(path in move.made for move in moves) or not (self._root / path).is_dir():
            return False
        known = {move.path for move in moves}
        below = [f"{path}/{name}" for name in paths.scan_names(self._root / path)]
        return all(one in known or self._is_made(one) for one in below)

    def _change_problem(self, move: Move) -> str | None:
        if move.grows:
            return inplace.growth_problem(self._root, move.path, move.position, move.length)
        kept = self._kept_tail(move)
        return inplace.tail_problem(self._root, move.path, move.position, move.length, kept)

    def _places(self, move: Move) -> tuple[Path, Path, Path]:
        """The path in the store, the place of the old file, and the place of the new one.

        :raises SymbolicLinkRefused: a link leads elsewhere from there.
        """
        directory = self._directory
        old = kept_place(directory, move.steps[0], move.path)
        new = directory / NEW / move.path
        for place in (old, new):
            refuse_links(self._root, place.relative_to(self._root).parent)
        return self._root / move.path, old, new

    def _kept_tail(self, move: Move) -> Path:
        kept = kept_tail(self._directory, move.steps[0], move.path, move.position)
        refuse_links(self._root, kept.relative_to(self._root))
        return kept

    # --- moving --------------------------------------------------------------------------

    def forward(self) -> None:
        """Makes all moves. :raises RepairCutOff, SymbolicLinkRefused: the journal stays."""
        with _cut_off_told(self._root):
            for move in self._journal.moves:
                if move.grows:
                    inplace.resize(self._root, move.path, move.position + move.length)
                elif move.length:
                    inplace.zero(self._root, move.path, move.position)
                elif move.late:
                    self._take(move)
                else:
                    self._replace(move)
            for move in self._late():
                self._replace(move)

    def back(self) -> None:
        """Takes all moves back. Errors as of :meth:`forward`."""
        with _cut_off_told(self._root):
            for move in self._late():
                self._withdraw(move)
            for move in reversed(self._journal.moves):
                if move.grows:
                    inplace.resize(self._root, move.path, move.position)
                elif move.length:
                    kept = self._kept_tail(move)
                    inplace.restore_tail(self._root, move.path, move.position, kept)
                else:
                    self._return(move)

    def _late(self) -> list[Move]:
        return [move for move in self._journal.moves if move.late]

    def _take(self, move: Move) -> None:
        """Moves the old file to where it is kept."""
        target, old, _ = self._places(move)
        refuse_links(self._root, Path(move.path).parent)
        if move.old is not None and not os.path.lexists(old):
            os.rename(target, old)
            durable.sync_directory(old.parent)
            durable.sync_directory(target.parent)

    def _withdraw(self, move: Move) -> None:
        """Moves the new file back to where it was built."""
        target, _, new = self._places(move)
        refuse_links(self._root, Path(move.path).parent)
        if move.new is not None and not os.path.lexists(new):
            make_directories(new.parent)
            os.rename(target, new)
            durable.sync_directory(target.parent)

    def _replace(self, move: Move) -> None:
        self._take(move)
        target, _, new = self._places(move)
        if move.new is not None and os.path.lexists(new):
            if os.path.lexists(target):
                raise FileExistsError(17, "something stands there that was not there", str(target))
            for name in move.made:
                make_directory(self._root, name)
            os.rename(new, target)
        durable.sync_directory(target.parent)

    def _return(self, move: Move) -> None:
        self._withdraw(move)
        target, old, _ = self._places(move)
        for name in reversed(move.made):
            path = self._root / name
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()
        if move.old is not None and os.path.lexists(old):
            os.rename(old, target)
        for directory in (old.parent, target.parent):
            if directory.is_dir():
                durable.sync_directory(directory)

    # --- the end -------------------------------------------------------------------------

    def finish(self) -> Path:
        """After all moves: makes the directory, with what was replaced, a backup, by one rename.
        Errors as of :meth:`forward`."""
        backup = self._root / self._journal.backup
        with _cut_off_told(self._root):
            durable.remove_tree(self._directory / NEW)
            durable.put_in_place(self._directory, backup)
        return backup

    def clear(self) -> None:
        """After all moves were taken back: removes what was built. If files of the store are left
        (by a changed journal), the directory stays as a backup. Errors as of :meth:`forward`.

        :raises CannotWrite: the store is as it was; only what was built could not be removed.
        """
        moves = self._journal.moves
        tails = {self._kept_tail(move) for move in moves if move.length and not move.grows}
        is_all_back = all(path in tails for path in kept_files(self._directory))
        with _cut_off_told(self._root):
            # Without a journal the plan would count as one that is still to be carried out.
            (self._directory / PLAN).unlink(missing_ok=True)
            durable.sync_directory(self._directory)
            (self._directory / JOURNAL).unlink()
        try:
            durable.sync_directory(self._directory)
        except OSError as error:  # A repair that could be ended is none any more.
            raise writing.writing_error(self._directory, error) from error
        with suppress(OSError):  # The store is as it was: who repairs next removes the rest.
            if is_all_back:
                shutil.rmtree(self._directory)
            else:
                os.rename(self._directory, self._root / self._journal.backup)
            durable.sync_directory(self._root)


def backup_name(root: Path, now: datetime) -> str:
    """The name of a repair's directory at the end: its number is the time, but higher than that of
    all backups there, as ``--undo`` takes back the highest first, whatever the clock says."""
    known = filter(_IS_BACKUP.fullmatch, paths.scan_names(root))
    last = max((int(name.removeprefix(KEPT_BY_REPAIR)) for name in known), default=0)
    number = int(now.strftime("%Y%m%d%H%M%S%f"))
    if number <= last < _MOST_NUMBER:
        number = last + 1
    return f"{KEPT_BY_REPAIR}{number:020d}"


def kept_place(directory: Path, step: int, path: str) -> Path:
    """Where the old file of a path is kept: by steps, as one path may lie within another's."""
    return directory / OLD / str(step) / path


def kept_tail(directory: Path, step: int, path: str, position: int) -> Path:
    """Where the bytes of a file that become zeros are kept."""
    return kept_place(directory, step, f"{path}.from-{position}")


def is_tail(kept: Path) -> bool:
    """Whether a kept file is a tail, by its name: tails are copied before anything is changed."""
    return _IS_TAIL.search(kept.name) is not None


def kept_files(directory: Path) -> Iterator[Path]:
    """Everything but directories that the directory of a repair, or a backup, has kept."""
    everything = (directory / OLD).rglob("*")
    return (path for path in everything if path.is_symlink() or not path.is_dir())


def make_directory(root: Path, name: str) -> None:
    """Makes a directory in the store, with the store's owner."""
    path = root / name
    if not path.is_dir():
        make_directories(path)
        durable.sync_directory(path.parent)


@contextmanager
def _cut_off_told(root: Path) -> Iterator[None]:
    """Inside, what the system refuses becomes :exc:`RepairCutOff`."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise RepairCutOff(path=str(error.filename or root), reason=reason) from error
