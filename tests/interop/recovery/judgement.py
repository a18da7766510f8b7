"""Judges whether a store on which rmqctl has worked is as good for the engine as it was before.

The control is the same state with the engine alone. The store on which rmqctl has worked must have
at least all of the control's messages, places in queues and hits of keys, and ``verify`` must not
find anything in it that it does not find in the control.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from formats.constants import TRANSACTION_COMMIT_TYPE, TRANSACTION_TYPE_MASK
from rmqctl.operations.verify import INFO, Finding, verify
from tests.golden_data import tree_content
from tests.interop.engine import Row
from tests.interop.recovery.visits import Visited
from tests.interop.stores import config_of

#: A query gives no more hits than this.
MOST_HITS = 64
Place = tuple[str, int, int]


@dataclass
class Checked:
    """A store after the engine's stop: what the engine said, and what ``verify`` finds."""

    visited: Visited
    findings: list[Finding] = field(default_factory=list)

    @property
    def codes(self) -> Counter[str]:
        return Counter(found.code for found in self.findings)


def check(root: Path, values: Row, visited: Visited) -> Checked:
    """Verifies a store after the engine's stop; only errors and warnings are kept."""
    if not visited.is_sound:
        return Checked(visited)
    found = (row for row in verify(root, config_of(values)) if isinstance(row, Finding))
    return Checked(visited, [row for row in found if row.severity != INFO])


def changed_files(root: Path, before: Path) -> list[str]:
    """The files that differ from what they were; the file ``lock`` does not count."""
    one, other = tree_content(root), tree_content(before)
    return sorted(
        name
        for name in one.keys() | other.keys()
        if one.get(name) != other.get(name) and name != "lock"
    )


def is_counted(row: Row) -> bool:
    """Whether a message has a unit: a prepared or rolled back one has none."""
    return int(row["sysFlag"]) & TRANSACTION_TYPE_MASK in (0, TRANSACTION_COMMIT_TYPE)


def light_places(row: Row) -> dict[str, int]:
    """Light queue → queue offset, from the message's properties."""
    names = row["properties"].get("INNER_MULTI_DISPATCH", "")
    offsets = row["properties"].get("INNER_MULTI_QUEUE_OFFSET", "")
    if not names or not offsets:
        return {}
    return dict(zip(names.split(","), map(int, offsets.split(",")), strict=True))


def keys_of(row: Row) -> list[tuple[str, str]]:
    """Each (topic, key) by which a message must be found."""
    properties = row["properties"]
    keys = [properties.get("UNIQ_KEY", ""), *properties.get("KEYS", "").split(" ")]
    return [(row["topic"], key) for key in keys if key]


def is_of_queue(place: Place, row: Row | None) -> bool:
    """Whether a place is in one of the queues to which a message belongs."""
    if row is None:
        return False
    return (row["topic"], row["queueId"]) == place[:2] or place[0] in light_places(row)


def is_right(place: Place, unit: tuple[int, int], messages: dict[int, Row]) -> bool:
    """Whether a unit points to a message of its queue, with its size and its queue offset."""
    row = messages.get(unit[0])
    if row is None or row["size"] != unit[1]:
        return False
    if (row["topic"], row["queueId"]) == place[:2]:
        return bool(row["queueOffset"] == place[2])
    return light_places(row).get(place[0]) == place[2]


# --- nothing is lost -------------------------------------------------------------------------


def lost_messages(control: Visited, result: Visited, start: int) -> Iterator[str]:
    """Messages that the log does not have any more, from its first offset ``start`` on."""
    found = result.messages
    for offset, row in sorted(control.messages.items()):
        if offset < start:
            continue
        name = f"the message at {offset} ({row['topic']}/{row['queueId']}@{row['queueOffset']})"
        if offset not in found:
            yield f"{name} is not in the log any more"
        elif found[offset] != row | {"kind": found[offset]["kind"]}:
            yield f"{name} is another one now: {found[offset]}"


def lost_units(control: Visited, result: Visited, start: int, other: Visited) -> Iterator[str]:
    """Units that are gone or changed, of those that lead to a message of their queue both in the
    control and in ``other`` (:class:`Case`); these differ when the command was killed."""
    messages, units = control.messages, result.units
    reachable: dict[tuple[str, int], set[int]] = {}
    for (topic, queue_id, _), (offset, _) in units.items():
        reachable.setdefault((topic, queue_id), set()).add(offset)
    for place, unit in sorted(control.units.items()):
        topic, queue_id, queue_offset = place
        if unit[0] < start or unit[1] <= 0 or not is_of_queue(place, messages.get(unit[0])):
            continue
        if other.units.get(place) != unit:
            continue
        where = f"{topic}/{queue_id}@{queue_offset}"
        if unit[0] not in reachable.get((topic, queue_id), set()):
            yield f"{where}: the message at {unit[0]} has no unit in its queue any more"
        elif is_right(place, unit, messages) and place in units and units[place] != unit:
            yield f"{where}: the unit was {unit}, and is {units[place]}"


def lost_hits(control: Visited, result: Visited, start: int, other: Visited) -> Iterator[str]:
    """Messages that are not found by one of their keys any more, with ``other`` as for
    :func:`lost_units`. Hits of messages that do not have the key, but the same hash, are left
    out."""
    messages, found = control.messages, result.hits
    for (topic, key), offsets in sorted(control.hits.items()):
        now = found.get((topic, key), set())
        for offset in sorted((offsets & other.hits.get((topic, key), set())) - now):
            row = messages.get(offset)
            if offset < start or row is None or (topic, key) not in keys_of(row):
                continue
            if len(now) < MOST_HITS:
                yield f"key {key!r} of {topic} does not find the message at {offset} any more"


# --- nothing is wrong ------------------------------------------------------------------------


def wrong_units(case: Case) -> Iterator[str]:
    """Units that point to something else than their message; but not those that the control has,
    too, those of expired messages, and those that the engine writes behind the end of a queue which
    was too short, when it dispatches its messages again."""
    control, result = case.control.visited, case.result.visited
    messages, known = result.messages, control.units
    short = {(one.topic, one.queue_id) for one in case.control.findings if one.code in WITHOUT_UNIT}
    for place, unit in sorted(result.units.items()):
        topic, queue_id, queue_offset = place
        if is_right(place, unit, messages) or known.get(place) == unit:
            continue
        was_right = place in known and is_right(place, known[place], control.messages)
        if unit[0] < result.log_range.start or (place[:2] in short and not was_right):
            continue
        row = messages.get(unit[0])
        at = f"{topic}/{queue_id}@{queue_offset}: the unit points to {unit[0]} (size {unit[1]})"
        if row is None:
            yield f"{at}, where no message is"
        else:
            what = f"{row['topic']}/{row['queueId']}@{row['queueOffset']}, size {row['size']}"
            yield f"{at}, which is {what}"


def new_messages(control: Visited, result: Visited, wanted: int) -> Iterator[str]:
    """What is wrong with new messages: there must be ``wanted`` of them, and each must be at its
    place in its queue and be found by its keys."""
    before, units, hits = control.messages, result.units, result.hits
    count = len(result.messages.keys() - before)
    if count < wanted:
        yield f"there are {count} new messages, not {wanted}"
    for offset, row in sorted(result.messages.items()):
        if offset in before or not is_counted(row):
            continue
        place = row["topic"], row["queueId"], row["queueOffset"]
        if units.get(place) != (offset, row["size"]):
            yield (
                f"the new message at {offset} is not at its place {place[0]}/{place[1]}@{place[2]}:"
                f" there is {units.get(place)}"
            )
        for topic, key in keys_of(row):
            found = hits.get((topic, key), set())
            if offset not in found and len(found) < MOST_HITS:
                yield f"the new message at {offset} is not found by its key {key!r} of {topic}"


def broken_promises(
    control: Visited, result: Visited, acknowledged: Iterable[tuple[Row, Row]]
) -> Iterator[str]:
    """What is wrong with acknowledged messages. Each is given as (the line that was sent, the row
    of the command that said PUT_OK)."""
    messages, pulled, hits = result.messages, result.pulled, result.hits
    given: dict[Place, int] = {}
    for sent, row in acknowledged:
        offset = row["wrote_offset"]
        place = (row["topic"], row["queue_id"], row["queue_offset"])
        name = f"the message of PUT_OK at {offset} ({place[0]}/{place[1]}@{place[2]})"
        if place in given:
            yield f"{name} has the queue offset of the one at {given[place]}"
        given[place] = offset
        old = control.units.get(place)
        if old is not None and old[0] in control.messages and old[0] != offset and old[1] > 0:
            yield f"{name} has the queue offset of the old message at {old[0]}"
        answer = pulled.get(place)
        if answer is None or answer["physicalOffsets"][:1] != [offset]:
            yield f"{name} is not served: a pull there gives {answer}"
        stored = messages.get(offset)
        if stored is None:
            yield f"{name} is not in the log"
            continue
        wanted = {
            "topic": row["topic"],
            "queueId": row["queue_id"],
            "queueOffset": row["queue_offset"],
            "msgId": row["msg_id"],
            "bodySha256": sha256(sent["body"].encode()).hexdigest(),
        }
        wrong = {field: stored[field] for field, value in wanted.items() if stored[field] != value}
        if wrong:
            yield f"{name} is another one: {wrong}"
        for topic, key in keys_of(stored):
            if offset not in hits.get((topic, key), ()):
                yield f"{name} is not found by its key {key!r} of {topic}"


#: Findings of records without a unit. A further message in their queue, or a unit that is written
#: in part, turns these into other findings, the second list.
WITHOUT_UNIT = ("record-without-unit", "queue-missing")
OF_RECORDS_WITHOUT_UNIT = (
    *WITHOUT_UNIT,
    "queue-begun-again",
    "queue-offset-repeated",
    "unit-mismatch",
    "unit-misplaced",
)


def new_findings(case: Case) -> Iterator[str]:
    """What verify finds in the result and not in the control; in rebuilt structures, whatever it
    finds. Findings of records that had no unit after one of the two starts do not count: a clean
    start does not dispatch them again, and new messages get their places. The engine does the
    same."""
    known = case.control.codes
    # Items behind damage of an index file, or in no file, may have one finding or another.
    of_index = any(one.structure == "index" for one in case.control.findings)
    for code, found in by_code(case.result.findings).items():
        if code in case.allowed_codes:
            continue
        excuses = {
            (one.topic, one.queue_id)
            for one in (*case.control.findings, *case.other.findings)
            if code in OF_RECORDS_WITHOUT_UNIT and one.code in WITHOUT_UNIT
        }
        found = [one for one in found if (one.topic, one.queue_id) not in excuses]
        found = [one for one in found if not is_address_of(case.other, one)]
        if found and found[0].structure == "index" and "index" not in case.rebuilt and of_index:
            continue
        before = 0 if found and found[0].structure in case.rebuilt else known[code]
        if len(found) > before:
            one = found[-1]
            where = f"{one.path} @{one.position}, log {one.physical_offset}"
            yield (
                f"verify finds {len(found) - before} more {code} ({one.severity}), such as in "
                f"{where}: expected {one.expected}, found {one.found}"
            )


def is_address_of(control: Checked, found: Finding) -> bool:
    """Whether the control has a wrong address in the extension at the same place. A start after a
    crash dispatches again, and extends the extension with each unit. Which of the old addresses are
    right then depends on where it begins, and that may be earlier than in the other control."""
    place = found.code, found.path, found.position
    known = ((one.code, one.path, one.position) for one in control.findings)
    return "extension" in (found.found or "") and place in known


def by_code(findings: list[Finding]) -> dict[str, list[Finding]]:
    found: dict[str, list[Finding]] = {}
    for one in findings:
        found.setdefault(one.code, []).append(one)
    return dict(sorted(found.items()))


# --- all of it -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """What is compared: ``result``, the store on which rmqctl has worked, with ``control``.

    ``acknowledged`` is as in :func:`broken_promises`. ``stores`` is how many messages the command
    has put, if it came to its end. In the structures ``rebuilt``, ``verify`` must find nothing at
    all. Findings with ``allowed_codes`` are no fault, and the log may begin at ``allowed_starts``.
    """

    control: Checked
    #: The control for the state as it was; ``control`` is another one when the command was killed,
    #: which makes the next start one after a crash.
    other: Checked
    result: Checked
    acknowledged: list[tuple[Row, Row]]
    stores: int | None
    rebuilt: tuple[str, ...]
    allowed_codes: list[str]
    allowed_starts: tuple[int, ...]


def differences(case: Case) -> list[str]:
    """All that is wrong with the result, in words; empty when nothing is."""
    control, result = case.control.visited, case.result.visited
    if not result.is_sound:
        return [f"the engine does not start on it: {result.why or result.error}"]
    start = result.log_range.start
    found: list[str] = []
    if start not in case.allowed_starts:
        found.append(
            f"the log begins at {start}, not at {' or '.join(map(str, case.allowed_starts))}"
        )
    found += lost_messages(control, result, start)
    found += lost_units(control, result, start, case.other.visited)
    found += lost_hits(control, result, start, case.other.visited)
    found += wrong_units(case)
    found += broken_promises(control, result, case.acknowledged)
    if case.stores is not None:
        found += new_messages(control, result, case.stores)
    found += new_findings(case)
    return found
