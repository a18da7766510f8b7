"""What the demo works on: some messages, small file sizes, one flipped bit."""

from __future__ import annotations

import json
from pathlib import Path

from rmqctl.engine.queue.consumequeue import UNIT_SIZE

SAMPLE_KEY = "payment-1235"
_MESSAGES = 4000
_TOPICS = (("orders", "order", "created || paid"), ("payments", "payment", "card || bank"))
_BROKER_CONF = """\
# Small files, so that a demo sees several of each.
mappedFileSizeCommitLog=262144
mappedFileSizeConsumeQueue=6000
maxHashSlotNum=1000
maxIndexNum=4000
"""
_DAMAGED = Path("consumequeue/orders/0/00000000000000000000")
_DAMAGED_UNIT = 123


def write_inputs(directory: Path) -> int:
    """Writes ``broker.conf`` and ``messages.ndjson``; how many messages."""
    (directory / "broker.conf").write_text(_BROKER_CONF)
    with (directory / "messages.ndjson").open("w", encoding="utf-8") as file:
        for number in range(_MESSAGES):
            file.write(json.dumps(_message(number), ensure_ascii=False) + "\n")
    return _MESSAGES


def _message(number: int) -> dict[str, object]:
    if number % 10 == 0:
        return {"topic": "métriques-度量", "body": json.dumps({"cpu": number % 97})}
    topic, key, tags = _TOPICS[number % 2]
    return {
        "topic": topic,
        "queue_id": number // 2 % 4,
        "tags": tags.split(" || ")[number % 3 % 2],
        "keys": f"{key}-{number}",
        "properties": {"region": ("eu", "us", "cn")[number % 3]},
        "body": json.dumps({"id": number, "amount": number * 37 % 1000, "currency": "EUR"}),
    }


def flip_one_bit(store: Path) -> str:
    """Flips a bit in a queue unit and says where."""
    position = _DAMAGED_UNIT * UNIT_SIZE + 6
    path = store / _DAMAGED
    data = bytearray(path.read_bytes())
    data[position] ^= 0x04
    path.write_bytes(data)
    return f"byte {position} of {_DAMAGED}"
