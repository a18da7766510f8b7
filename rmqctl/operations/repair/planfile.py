"""Plans as JSON files, which a user can read, and take whole steps out of.

A file that is read may come from anywhere: every field is checked, and no path leads out of the
store.
"""

from __future__ import annotations

import json
import os
from pathlib import Path, PurePosixPath
from typing import Any

from formats.constants import INT_MAX, LONG_MAX
from rmqctl.engine.files import durable, paths
from rmqctl.engine.state import brokerjson
from rmqctl.errors import ConfigFileUnreadable, OutputExists
from rmqctl.operations.repair.errors import PlanUnreadable
from rmqctl.operations.repair.model import (
    ACTIONS,
    CUT_TAIL,
    EXTEND_FILE,
    QUARANTINE,
    Plan,
    Premises,
    Step,
)

FORMAT, VERSION = "rmqctl repair plan", 1
_HOW = (
    "Read it, then `rmqctl repair --apply` it. Whole steps may be left out; nothing else may be "
    "changed."
)
_FIELDS = {"format", "version", "how", "store", "made", "premises", "steps", "left", "left_out"}
#: The directories out of which a plan moves foreign files.
MOVED_ROOMS = (
    *(paths.COMMIT_LOG, paths.CONSUME_QUEUE, paths.CONSUME_QUEUE_EXT, paths.INDEX),
    brokerjson.CONFIG,
)
#: The directories in which the path of an action may be; of other actions: config/.
_ROOMS = {
    QUARANTINE: MOVED_ROOMS,
    EXTEND_FILE: (paths.COMMIT_LOG,),
    CUT_TAIL: (paths.COMMIT_LOG,),
}


def plan_text(plan: Plan) -> str:
    content = {
        "format": FORMAT,
        "version": VERSION,
        "how": _HOW,
        "store": plan.store,
        "made": plan.made,
        "premises": plan.premises._asdict(),
        "steps": [step.content() | {"digest": plan.digest(step)} for step in plan.steps],
        "left": [{"why": one.why, **_told(one.found._asdict())} for one in plan.left],
        "left_out": plan.left_out,
    }
    return json.dumps(content, indent=2) + "\n"


def _told(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def write_new(path: Path, text: str) -> None:
    """Writes a new file, durably. It appears when it is whole.

    :raises OutputExists: there is one already.
    :raises CannotWrite, StoreReadOnly: the system refuses.
    """
    if os.path.lexists(path):
        raise OutputExists(path=str(path))
    durable.write_whole(path, text.encode())


# --- reading ---------------------------------------------------------------------------------


def read_plan(path: Path) -> Plan:
    """Reads the plan in a file, without the findings that it leaves.

    :raises PlanUnreadable: it is no plan, of another version, or was changed by hand.
    :raises CannotRead: the system refuses to read it.
    """
    try:
        value = brokerjson.read(path)
    except ConfigFileUnreadable as error:
        where = f"line {error.line}, column {error.column}: {error.reason}"
        raise PlanUnreadable(path=str(path), reason=where) from None
    if value is None:
        if not path.exists():
            raise PlanUnreadable(path=str(path), reason="there is no such file")
        raise PlanUnreadable(path=str(path), reason="it is empty")
    try:
        if isinstance(value, dict):
            # What the store's own texts say is only there to be read.
            value.pop("left", None)
        check_texts(value)
        return _plan(value)
    except (_Bad, NoName) as bad:
        raise PlanUnreadable(path=str(path), reason=str(bad)) from None


class NoName(Exception):
    """A text is no name of a file."""


class _Bad(Exception):
    """Why a value is no plan."""


def check_texts(value: Any) -> None:
    """Checks the texts in a value that names files.

    :raises NoName: a text has what no file's name can: NUL, or surrogates that stand for no byte.
    """
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise NoName("it holds text that no name can be") from None
    if "\\u0000" in text:
        raise NoName("it holds text that no name can be")


def _plan(value: Any) -> Plan:
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise _Bad("it does not say that it is one")
    if value.get("version") != VERSION:
        shown = json.dumps(value.get("version"))[:40]
        raise _Bad(f"it is of version {shown}, and this rmqctl knows version {VERSION}")
    _only(value, _FIELDS, "the plan")
    premises = _field(value, "premises", dict)
    _only(premises, set(Premises._fields), "premises")
    known = Premises(
        _field(premises, "log", dict),
        _field(premises, "clean_shutdown", bool),
        _field(premises, "settings", dict),
    )
    for name, kind in (("min_offset", int), ("end_offset", int), ("sha256", str), ("behind", str)):
        _field(known.log, name, kind)
    listed = [_step(one) for one in _field(value, "steps", list)]
    steps = tuple(step for step, _ in listed)
    plan = Plan(_field(value, "store", str), _field(value, "made", str), known, steps)
    numbers = {step.number for step in steps}
    if len(numbers) < len(steps):
        raise _Bad("two steps have one number")
    for step, digest in listed:
        if digest != plan.digest(step):
            raise _Bad(f"step {step.number} is not as it was made")
        lacking = [number for number in step.needs if number not in numbers]
        if lacking:
            raise _Bad(f"step {step.number} needs step {lacking[0]}, which was left out")
    return plan


def _step(value: Any) -> tuple[Step, str]:
    if not isinstance(value, dict):
        raise _Bad("a step is no object")
    number = _field(value, "step", int)
    action = _field(value, "action", str)
    where = f"step {number}"
    if action not in ACTIONS:
        raise _Bad(f"{where} has the unknown action {action[:40]!r}")
    fields = ACTIONS[action]
    others = {"step", "action", "mends", "changes", "sacrifices", "needs", "store_has", "digest"}
    _only(value, others | set(fields), where)
    what = {name: _field(value, name, kind) for name, kind in fields.items()}
    _check(action, what, where)
    store_has = _field(value, "store_has", dict)
    for path, one in store_has.items():
        _check_path(path, where)
        if one is not None and not isinstance(one, dict):
            raise _Bad(f"in {where} store_has is not what it must be")
    step = Step(
        number,
        action,
        what,
        tuple(_texts(value, "mends")),
        _field(value, "changes", str),
        _field(value, "sacrifices", str),
        tuple(_numbers(value, "needs")),
        store_has,
    )
    return step, _field(value, "digest", str)


def _check(action: str, what: dict[str, Any], where: str) -> None:
    """:raises _Bad: a field of an action has a value that rmqctl never writes."""
    for name, number in what.items():
        most = INT_MAX if name == "queue_id" else LONG_MAX
        # The old offset of a group may be anything; the new one may not.
        if isinstance(number, int) and name != "old_offset" and not 0 <= number <= most:
            raise _Bad(f"in {where} {name} is {number}")
    if "topic" in what and (problem := paths.topic_directory_problem(what["topic"])) is not None:
        raise _Bad(f"in {where} the topic cannot be a directory: {problem}")
    if "path" in what:
        parts = _check_path(what["path"], where).parts
        rooms = _ROOMS.get(action, (brokerjson.CONFIG,))
        if parts[0] not in rooms:
            raise _Bad(f"in {where} the path is not in {' or '.join(rooms)}")
        if action not in _ROOMS and (len(parts) != 2 or not parts[1].endswith(".json")):
            raise _Bad(f"in {where} the path is no file of {brokerjson.CONFIG}/")


def _check_path(path: str, where: str) -> PurePosixPath:
    """The path, which is one below the store. :raises _Bad: it is not."""
    if not is_below(path):
        raise _Bad(f"in {where} {path[:80]!r} is no path below the store")
    return PurePosixPath(path)


def is_below(path: str) -> bool:
    """Whether a text is a path below a store, as rmqctl itself would write it."""
    parts = PurePosixPath(path).parts
    return (
        bool(parts)
        and not {"/", ".."} & set(parts)
        and "\0" not in path
        and "/".join(parts) == path
    )


def _field(value: dict[Any, Any], name: str, kind: type) -> Any:
    found = value.get(name)
    if type(found) is not kind:
        raise _Bad(f"{name} is missing, or is no {kind.__name__}")
    return found


def _texts(value: dict[Any, Any], name: str) -> list[str]:
    found = _field(value, name, list)
    if not all(type(one) is str for one in found):
        raise _Bad(f"{name} holds something else than texts")
    return list(found)


def _numbers(value: dict[Any, Any], name: str) -> list[int]:
    found = _field(value, name, list)
    if not all(type(one) is int for one in found):
        raise _Bad(f"{name} holds something else than numbers")
    return list(found)


def _only(value: dict[Any, Any], known: set[str], where: str) -> None:
    strange = [str(name) for name in value if name not in known]
    if strange:
        raise _Bad(f"{where} has the unknown field {strange[0][:40]!r}")
