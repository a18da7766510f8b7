"""Builds everything that a repair puts into a store, beside it; the store itself is only read."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from formats.constants import CHECKPOINT_FILE_SIZE, LMQ_PREFIX
from rmqctl.engine.files import durable, paths
from rmqctl.engine.files.extents import write_at
from rmqctl.engine.files.filequeue import is_offset_name
from rmqctl.engine.files.mappedfile import MappedFile
from rmqctl.engine.files.owner import hand_over_tree, make_directories
from rmqctl.engine.files.unfinished import REPAIR
from rmqctl.engine.messagestore import MessageStore, system_clock
from rmqctl.engine.start.plan import scan_place
from rmqctl.engine.state import brokerjson, fastjson
from rmqctl.engine.state.checkpoint import Checkpoint, lower_logics_offset, write_checkpoint
from rmqctl.engine.state.consumeroffsets import ConsumerOffsets
from rmqctl.operations.mend.rebuild import check_explained, one_pass, plan_rebuild
from rmqctl.operations.mend.swap import refuse_links
from rmqctl.operations.mend.timer import TIMER_PARTS, build_timer
from rmqctl.operations.progress import Progress
from rmqctl.operations.repair import model
from rmqctl.operations.repair.errors import PlanDoesNotFit
from rmqctl.operations.repair.fingerprint import fingerprint
from rmqctl.operations.repair.journal import (
    NEW,
    Journal,
    Move,
    backup_name,
    kept_place,
    kept_tail,
)

if TYPE_CHECKING:
    from rmqctl.engine.settings.storeconfig import MessageStoreConfig
    from rmqctl.operations.repair.model import Plan, Step

_REBUILDS = (model.REBUILD_QUEUES, model.REBUILD_QUEUE, model.REBUILD_INDEX)
_QUEUE_ROOMS = (paths.CONSUME_QUEUE, paths.CONSUME_QUEUE_EXT)


def stage(
    root: Path, config: MessageStoreConfig, plan: Plan, progress: Progress | None, jobs: int
) -> Journal:
    """Builds what the steps of a plan put into the store. The journal has the moves that put it
    there.

    :raises CannotWrite: the disk is full.
    :raises PlanDoesNotFit: something that a step is about is not as the plan says.
    """
    building = _Stage(root, config, plan)
    moves = tuple(building.moves(progress, jobs))
    durable.sync_directories(root / REPAIR)
    name = backup_name(root, datetime.now())
    return Journal(name, plan.premises.log, [step.content() for step in plan.steps], moves)


class _Stage:
    def __init__(self, root: Path, config: MessageStoreConfig, plan: Plan) -> None:
        self._root, self._config, self._plan = root, config, plan
        self._directory = root / REPAIR
        self._new = self._directory / NEW
        make_directories(self._new)

    def _steps(self, *actions: str) -> list[Step]:
        return [step for step in self._plan.steps if step.action in actions]

    def moves(self, progress: Progress | None, jobs: int) -> Iterator[Move]:
        """The moves in the order of the steps."""
        for step in self._steps(model.QUARANTINE):
            yield self._move(step.path, step.number)
        for step in self._steps(model.EXTEND_FILE):
            yield self._growth(step)
        for step in self._steps(model.CUT_TAIL):
            yield self._tail(step)
        if self._steps(*_REBUILDS):
            self._rebuild(progress, jobs)
        for step in self._steps(*_REBUILDS):
            yield from self._rebuilt(step)
        for step in self._steps(model.REBUILD_TIMER):
            yield from self._timer(step)
        by_path: dict[str, list[Step]] = {}
        for step in self._steps(model.RESTORE_CONFIG, model.SET_OFFSET):
            by_path.setdefault(step.path, []).append(step)
        for path, steps in by_path.items():
            self._config_file(path, steps)
            yield self._move(path, *(step.number for step in steps))
        for step in self._steps(model.SET_CHECKPOINT):
            self._checkpoint(step)
            yield self._move(step.path, step.number)

    def _move(self, path: str, *steps: int) -> Move:
        """The move that puts in place what was built for a path. Where nothing was, it only takes
        the old away."""
        refuse_links(self._root, Path(path).parent)
        kept = kept_place(self._directory, steps[0], path)
        make_directories(kept.parent)
        if (self._new / path).exists():
            hand_over_tree(self._new / path, self._root)
        new = fingerprint(self._new / path)
        above = reversed(Path(path).parents)
        made = [str(one) for one in above if new is not None and not (self._root / one).is_dir()]
        return Move(path, steps, fingerprint(self._root / path), new, tuple(made))

    # --- one action each -----------------------------------------------------------------

    def _growth(self, step: Step) -> Move:
        """The move that adds zeros to a file, up to the length of all files of the log."""
        path, position, length = (step.what[name] for name in ("path", "position", "length"))
        with MessageStore(self._root, self._config) as store:
            size = store.commit_log.file_size
        if (self._root / path).stat().st_size != position or position + length != size:
            raise PlanDoesNotFit(
                store=str(self._root),
                reason=f"{path} is not {length} bytes shorter than a file of the log",
            )
        return Move(path, (step.number,), None, None, (), position, length, grows=True)

    def _tail(self, step: Step) -> Move:
        """Keeps a copy of the bytes that become zeros; the move that makes them zeros."""
        path, position, length = (step.what[name] for name in ("path", "position", "length"))
        kept = kept_tail(self._directory, step.number, path, position)
        make_directories(kept.parent)
        file = MappedFile.open(self._root / path)
        try:
            end = self._plan.premises.log["end_offset"]
            name = Path(path).name
            is_end = is_offset_name(name) and int(name) + position == end
            if not is_end or file.end_of_data(position) != position + length:
                raise PlanDoesNotFit(
                    store=str(self._root),
                    reason=f"behind the log's end, {end}, stands something else than before",
                )
            _copy_tail(file, kept, position, length)
        finally:
            file.close()
        return Move(path, (step.number,), None, None, (), position, length)

    def _rebuild(self, progress: Progress | None, jobs: int) -> None:
        """Builds all queues, and the index, that steps ask for in one pass over the log."""
        queues = self._steps(model.REBUILD_QUEUES, model.REBUILD_QUEUE)
        index = self._steps(model.REBUILD_INDEX)
        what = "all" if queues and index else "queues" if queues else "index"
        plan = plan_rebuild(self._root, self._config, what)
        if not self._steps(model.REBUILD_QUEUES) and queues:
            only = frozenset((step.what["topic"], step.what["queue_id"]) for step in queues)
            few = [one for one in plan.unexplained if (one.topic, one.queue_id) in only]
            plan = replace(plan, only=only, unexplained=tuple(few))
        check_explained(plan)
        one_pass(jobs)(plan, self._new, progress)

    def _rebuilt(self, step: Step) -> Iterator[Move]:
        names = [step.path]
        if step.action == model.REBUILD_QUEUES:
            names = list(_QUEUE_ROOMS)
        elif step.action == model.REBUILD_QUEUE:
            queue = f"{step.what['topic']}/{step.what['queue_id']}"
            names = [f"{room}/{queue}" for room in _QUEUE_ROOMS]
        for name in names:
            move = self._move(name, step.number)
            if step.action == model.REBUILD_QUEUE and name == step.path and move.new is None:
                self._refuse_empty(step)
            if move.old is not None or move.new is not None:
                yield move

    def _timer(self, step: Step) -> Iterator[Move]:
        """The moves of a new timer. The old wheel goes first, and the new one comes last: by the
        slots of the old wheel, which name places of the old timer log, a broker would deliver
        messages of the new timer log before their time."""
        build_timer(self._root, self._config, self._new, system_clock())
        for path in TIMER_PARTS:
            move = self._move(path, step.number)
            yield move._replace(late=path == step.path)

    def _refuse_empty(self, step: Step) -> None:
        """:raises PlanDoesNotFit: the log has no message of the queue, so that made anew it would
        begin at queue offset 0 again."""
        queue = f"queue {step.what['queue_id']} of topic {step.what['topic']!r}"
        raise PlanDoesNotFit(
            store=str(self._root),
            reason=f"the log has no message of {queue}, which would begin at offset 0 again: take "
            f"step {step.number} out of it",
        )

    def _config_file(self, path: str, steps: list[Step]) -> None:
        """Builds a file of config/: the old file with other offsets, or the content of its copy."""
        before = self._root / path
        offsets = [step for step in steps if step.action == model.SET_OFFSET]
        if offsets:
            name = Path(path).name
            value = brokerjson.read_config(self._root, name)
            for step in offsets:
                self._put_offset(name, value, step)
            text = fastjson.dumps(value)
        else:
            text = brokerjson.read_text(Path(f"{before}{brokerjson.BACKUP}"))
        fresh = self._new / path
        make_directories(fresh.parent)
        durable.write_whole(fresh, text.encode())
        self._like(before if before.is_file() else Path(f"{before}{brokerjson.BACKUP}"), fresh)

    def _put_offset(self, name: str, value: Any, step: Step) -> None:
        what = step.what
        key = f"{what['topic']}{brokerjson.TOPIC_GROUP_SEPARATOR}{what['group']}"
        is_light = what["group"].startswith(LMQ_PREFIX) and name == brokerjson.LMQ_CONSUMER_OFFSET
        table = brokerjson.LMQ_OFFSET_TABLE if is_light else "offsetTable"
        offsets = ConsumerOffsets(self._root, name, table, key, value, False)
        if offsets.offsets.get(what["queue_id"]) != what["old_offset"]:
            raise PlanDoesNotFit(
                store=str(self._root),
                reason=f"group {what['group']!r} is not at offset {what['old_offset']} any more",
            )
        offsets.put({what["queue_id"]: what["new_offset"]})

    def _checkpoint(self, step: Step) -> None:
        before, fresh = self._root / step.path, self._new / step.path
        data = before.read_bytes()[:CHECKPOINT_FILE_SIZE] if before.is_file() else b""
        durable.write_whole(fresh, data.ljust(CHECKPOINT_FILE_SIZE, b"\0"))
        checkpoint = Checkpoint(**step.what)
        write_checkpoint(self._new, fresh, checkpoint)
        with MessageStore(self._root, self._config) as store:
            log = store.commit_log
            start = scan_place(log, checkpoint, self._config)
        lower_logics_offset(self._new, fresh, lambda: start)
        if before.is_file():
            self._like(before, fresh)

    def _like(self, before: Path, fresh: Path) -> None:
        fresh.chmod(stat.S_IMODE(before.stat().st_mode))


def _copy_tail(file: MappedFile, kept: Path, position: int, length: int) -> None:
    """Copies a range of a file, holes as holes, durably."""
    descriptor = os.open(kept, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    try:
        os.ftruncate(descriptor, length)
        piece = 1 << 20
        for low, high in file.extents(position, position + length):
            for at in range(low, high, piece):
                data = file.read_aside(at, min(piece, high - at))
                write_at(descriptor, data, at - position)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
