"""What rmqctl is told to do with a store in one of the states."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.interop.engine import Row
from tests.interop.recovery.bases import ENDED_HALVES, HALF, Base
from tests.interop.recovery.states import State, expire
from tests.interop.recovery.visits import Visited
from tests.interop.stores import TOPICS

SCHEDULE = "SCHEDULE_TOPIC_XXXX"
#: How an action ends: by itself (""), by SIGKILL, or because the disk is full.
ENDINGS = ("", "killed", "full")
#: How many log files ``clean`` finds expired.
EXPIRED = 2


@dataclass
class Work:
    """A command line, without the store's options, and the messages that it puts, in order.
    ``stores`` is how many messages the log has more when all work is done. With ``may_decline`` the
    command may also find that there is nothing to do."""

    arguments: list[str]
    sent: list[Row] = field(default_factory=list)
    stores: int = 0
    may_decline: bool = False


@dataclass(frozen=True)
class Scene:
    """The store and state for which an action is made; ``control`` is what the engine alone makes
    of that state."""

    base: Base
    state: State
    control: Visited
    #: The store to which the action writes.
    root: Path
    chance: random.Random


@dataclass(frozen=True)
class Action:
    """An action; ``done`` are the exit codes that say that it has done all of its work."""

    name: str
    make: Callable[[Scene], Work]
    done: tuple[int, ...] = (0,)


# --- puts ------------------------------------------------------------------------------------


def message(scene: Scene, number: int, topic: str, queue_id: int) -> Row:
    """A message as a line for ``put --from``, with keys that no other message has."""
    name = f"new-{number}"
    return {
        "topic": topic,
        "queue_id": queue_id,
        "body": f"{name} " * scene.chance.randint(1, 60),
        "keys": f"{name} new",
        "tags": scene.chance.choice(("Aa", "BB", "tag")),
        "properties": {"UNIQ_KEY": f"NEW{number:04d}"},
    }


def topics(scene: Scene) -> list[tuple[str, int]]:
    """The queues to put messages into: the one that has lost something, others, and a new one. A
    message comes to a light queue by way of another topic."""
    topic, queue_id = scene.state.affected
    affected = (TOPICS[0] if topic.startswith("%LMQ%") else topic, queue_id)
    return [affected, (TOPICS[0], 0), (TOPICS[0], 2), (TOPICS[1], 1), (TOPICS[2], 0), ("New", 0)]


def put(scene: Scene) -> Work:
    where = scene.chance.choice(topics(scene))
    (line,) = with_light_queues(scene, [message(scene, 0, *where)])
    arguments = ["put", "--topic", line["topic"], "--queue-id", str(line["queue_id"])]
    arguments += ["--body", line["body"], "--keys", line["keys"], "--tags", line["tags"]]
    for name, value in line["properties"].items():
        arguments += ["--property", f"{name}={value}"]
    return Work(arguments, [line], 1)


def put_from(scene: Scene) -> Work:
    chosen = topics(scene)
    lines = [
        message(scene, number, *scene.chance.choice(chosen))
        for number in range(scene.chance.randint(30, 60))
    ]
    lines = with_light_queues(scene, [message(scene, 99, *chosen[0]), *lines])
    for line in scene.chance.sample(lines[1:], 4):
        line["delay_level"] = scene.chance.randint(1, 18)
    path = scene.root.with_name(scene.root.name + ".lines.ndjson")
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return Work(["put", "--from", str(path)], lines, len(lines))


def with_light_queues(scene: Scene, lines: list[Row]) -> list[Row]:
    if scene.base.values["enableLmq"]:
        for line in lines:
            if line["topic"] in TOPICS[:2] and scene.chance.random() < 0.7:
                names = scene.chance.sample(["%LMQ%one", "%LMQ%two"], scene.chance.randint(1, 2))
                line["properties"]["INNER_MULTI_DISPATCH"] = ",".join(names)
    return lines


# --- delayed and transactional messages ------------------------------------------------------


def deliver(scene: Scene) -> Work:
    """Delivers all delayed messages that wait, whether they are due or not."""
    messages = scene.control.messages
    waiting = sum(
        topic == SCHEDULE and unit[0] in messages
        for (topic, _, _), unit in scene.control.units.items()
    )
    return Work(["schedule", "deliver", "--until", "2090-01-01T00:00:00Z"], stores=waiting)


def ended(action: str) -> Callable[[Scene], Work]:
    """Ends two half messages that are still open, one of them the last. When the engine itself has
    none of these in their queue any more, rmqctl need not find them either."""

    def make(scene: Scene) -> Work:
        messages, units = scene.control.messages, scene.control.units
        pending = sorted(
            (offset, row["queueOffset"])
            for offset, row in messages.items()
            if row["topic"] == HALF and row["queueOffset"] >= ENDED_HALVES
        )
        served = [one for one in pending if units.get((HALF, 0, one[1]), (-1,))[0] == one[0]]
        is_served = len(served) > 1
        *others, last = served if is_served else pending
        arguments = ["transaction", action, str(scene.chance.choice(others)[0]), str(last[0])]
        # Each end is stored as a message of its own; a commit stores the two messages, too.
        stores = 4 if action == "commit" else 2
        return Work(arguments, stores=stores if is_served else 0, may_decline=not is_served)

    return make


# --- the rest --------------------------------------------------------------------------------


def clean(scene: Scene) -> Work:
    expire(scene.root, EXPIRED)
    return Work(["clean", "--yes", "--manual"])


def fixed(*arguments: str) -> Callable[[Scene], Work]:
    return lambda scene: Work(list(arguments))


_ACTIONS = [
    Action("put", put),
    Action("put-from", put_from),
    Action("flush", fixed("flush")),
    Action("deliver", deliver, done=(0, 1)),
    Action("commit", ended("commit")),
    Action("rollback", ended("rollback")),
    Action("clean", clean),
    Action("rebuild-missing", fixed("rebuild", "all", "--missing"), done=(0, 1)),
    Action("rebuild", fixed("rebuild", "all", "--in-place", "--yes"), done=(0, 1)),
]
ACTIONS: dict[str, Action] = {action.name: action for action in _ACTIONS}


def acknowledged(work: Work, rows: list[dict[str, Any]]) -> list[tuple[Row, Row]]:
    """Of each message that was stored: what was sent, and the row that says where it is."""
    answers = [row for row in rows if row["type"] == "append_result"]
    return [
        (line, row)
        for line, row in zip(work.sent, answers, strict=False)
        if row["status"] == "PUT_OK"
    ]
