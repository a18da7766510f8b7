"""simulate-start: what a simulation comes to, as rows, a verdict and the next command."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.engine.files import paths
from rmqctl.engine.files.shown import shown
from rmqctl.engine.rehearsal.model import Deleted, Step
from rmqctl.engine.services.retention import BEFORE_LOG, FORCED
from rmqctl.engine.state import brokerjson
from rmqctl.operations.doctor.simulatestart import LostOfQueue, Simulation, Truncated
from rmqctl.rows.words import some

if TYPE_CHECKING:
    from rmqctl.rows import Row
    from rmqctl.rows.doctor import (
        DeletedRow,
        SimulateStartSummary,
        StartedQueueRow,
        StepRow,
        TruncatedRow,
    )

#: Bytes of log that a broker's recovery reads and decodes in a second, from a present-day disk.
_BYTES_A_SECOND = 250_000_000
_OF_INDEX = "index-in-doubt"


def rows(done: Simulation) -> Iterator[Row]:
    """The rows of a simulation, without its summary."""
    for step in done.steps:
        yield _step_row(step)
    for one in (*done.outcome.deleted, *done.removals):
        yield _deleted_row(done.root, one)
    for cut in done.truncated:
        yield _truncated_row(done.root, cut)
    for queue in done.queues:
        yield _queue_row(queue)


def _step_row(step: Step) -> StepRow:
    return {"type": "step", "what": step.what, "where": step.where, "why": step.why}


def _deleted_row(root: Path, one: Deleted) -> DeletedRow:
    return {"type": "deleted", "path": shown(root, one.path), "size": one.size, "why": one.why}


def _truncated_row(root: Path, one: Truncated) -> TruncatedRow:
    return {
        "type": "truncated",
        "path": shown(root, one.path),
        "from_position": one.start,
        "to_position": one.end,
    }


def _queue_row(one: LostOfQueue) -> StartedQueueRow:
    return {
        "type": "queue",
        "topic": one.state.topic,
        "queue_id": one.state.queue_id,
        "min_offset": one.state.min_offset,
        "max_offset": one.state.max_offset,
        "lost": one.lost,
    }


def summary_row(done: Simulation, command: str | None = None) -> SimulateStartSummary:
    """The summary: whether the broker starts, what that costs, and the ``command`` to run next."""
    outcome = done.outcome
    first = outcome.first_scanned
    return {
        "type": "summary",
        "version": done.version,
        "starts": done.starts,
        "reason": outcome.reason or done.refusal,
        "clean_shutdown": outcome.is_clean,
        "first_scanned_file": None if first is None else shown(done.root, first),
        "min_physical_offset": outcome.min_offset if outcome.starts else None,
        "max_physical_offset": outcome.max_offset if outcome.starts else None,
        "messages_lost": done.messages_lost,
        "bytes_lost": done.bytes_lost,
        "queue_messages_lost": done.queue_messages_lost,
        "index_files_deleted": sum(one.why == _OF_INDEX for one in outcome.deleted),
        "retention_files": len(done.removals),
        "reput_from": outcome.reput_from,
        "bytes_to_scan": outcome.scanned_bytes,
        "estimated_seconds": estimated_seconds(outcome.scanned_bytes),
        "command": command,
    }


def next_words(done: Simulation) -> tuple[str, ...] | None:
    """The words of the next command, behind ``rmqctl`` and before the store; None: the broker may
    start, or runs. ``{salvaged}`` and ``{plan}`` stand for names that no file has."""
    if done.outcome.is_in_use:
        return None
    if (done.outcome.reason or "").startswith((f"{paths.LOCK}:", f"{paths.CHECKPOINT}:")):
        return ("verify",)  # Which says what to look at: no repair moves these away.
    if (done.outcome.reason or "").startswith(f"{brokerjson.CONFIG}/"):
        return "config", "check"  # Which names the place.
    if (failed := done.outcome.failed_queue) is not None:
        of_queue = ("--topic", failed[0], "--queue-id", str(failed[1]))
        return "rebuild", "queues", "--in-place", *of_queue
    if done.is_contradicted:
        return ("lint",)  # Which says both sizes. Others refuse this configuration.
    if done.is_misplaced or done.has_misplaced:
        return ("verify",)  # Which says what files are called wrong.
    if done.outcome.starts and done.refusal is not None:
        return ("lint",)  # Which names all that may not be written.
    if done.messages_lost or done.has_wrong_file:
        return "salvage", "--output", "{salvaged}", "--dry-run"
    if not done.is_harmless and done.outcome.min_offset < 0:
        return ("verify",)  # Which says that the log is missing: no repair brings it back.
    if not done.is_harmless:
        return "repair", "--plan", "{plan}"
    if any(one.why == _OF_INDEX for one in done.outcome.deleted):
        if done.is_damaged_near_end:
            return "salvage", "--output", "{salvaged}", "--dry-run"  # A flush is refused.
        return ("flush",)  # It does what the start does, and keeps the index.
    if any(one.why == FORCED for one in done.removals):
        return "clean", "--dry-run"  # Which says whose messages go.
    return None


def estimated_seconds(size: int) -> float:
    """The seconds in which a start reads so many bytes of log."""
    return round(size / _BYTES_A_SECOND, 1)


def verdict(done: Simulation) -> str:
    """The verdict in one line."""
    outcome, name = done.outcome, f"A broker of {done.version}"
    messages = some(done.messages_lost, "message")
    lost = f"{messages} of the log and {done.queue_messages_lost} of its queues"
    if not outcome.starts:
        also = f" Before that it would lose {lost}." if outcome.walked_to is not None else ""
        also = also if done.messages_lost or done.queue_messages_lost else ""
        if done.is_contradicted:
            also = " The broker.conf is none of this store's: give that of its own broker."
        return f"{name} does not start: {outcome.reason}.{also}"
    loses = "no message" if done.loses_nothing else lost
    if done.refusal is not None:
        return f"{name} does not start: {done.refusal}. If it could, it would lose {loses}."
    units = f"{some(done.misplaced, 'unit')} at places of other messages"
    wrong = f" It puts {units}: consumers get wrong ones." if done.misplaced else ""
    names = " Files of the log have wrong names." if done.has_misplaced else ""
    return f"{name} starts, and loses {loses}.{wrong}{_retention(done)}{names}"


def _retention(done: Simulation) -> str:
    """What the retention does soon after, for the verdict: no loss, but nothing to be missed."""
    if not done.removals:
        return ""
    of_log = sum(one.why != BEFORE_LOG for one in done.removals)
    files = some(len(done.removals), "file")
    return f" A minute later its retention deletes {files}, {of_log} of them of the log."
