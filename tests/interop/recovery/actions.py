"""What rmqctl is asked to do with a store in one of the states."""

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
#: How an action ends: by itself, by SIGKILL, on a disk that is full.
ENDINGS = ("", "killed", "full")
#: Log files that ``clean`` finds expired.
EXPIRED = 2


@dataclass
class Work:
    """A command line without the store, and the messages of a put in order. ``stores`` is how many
    messages it puts into the log when it does all of its work; when it ``may_decline``, it may also
    say that there is none to do."""

    arguments: list[str]
    sent: list[Row] = field(default_factory=list)
    stores: int = 0
    may_decline: bool = False


@dataclass(frozen=True)
class Scene:
    """What an action is made for; ``control`` is what the engine alone makes of the state."""

    base: Base
    state: State
    control: Visited
    #: The store that is written to.
    root: Path
    chance: random.Random


@dataclass(frozen=True)
class Action:
    """``done`` are the exit codes with which it has done what it was asked."""

    name: str
    make: Callable[[Scene], Work]
    done: tuple[int, ...] = (0,)


# --- puts ------------------------------------------------------------------------------------


def message(scene: Scene, number: int, topic: str, queue_id: int) -> Row:
    """As a line for ``put --from``, with keys of its own."""
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
    """Queues that get messages: the one that has lost something, others, a new one. A message goes
    to a light queue by way of another topic."""
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
    """All that waits, be it due or not."""
    messages = scene.control.messages
    waiting = sum(
        topic == SCHEDULE and unit[0] in messages
        for (topic, _, _), unit in scene.control.units.items()
    )
    return Work(["schedule", "deliver", "--until", "2090-01-01T00:00:00Z"], stores=waiting)


def ended(action: str) -> Callable[[Scene], Work]:
    """Two half messages that nothing has ended, one of them the last. Where the engine has none in
    their queue any more, rmqctl need not know them either."""

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
        # The messages, and what says that they have ended.
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
    """What was sent, and the row that says where it is: of those that were stored."""
    answers = [row for row in rows if row["type"] == "append_result"]
    return [
        (line, row)
        for line, row in zip(work.sent, answers, strict=False)
        if row["status"] == "PUT_OK"
    ]
