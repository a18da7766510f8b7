"""A child process that puts messages until it is killed; run as a module, driven by a plan in JSON.

It prints one line for each bulk, once that is acknowledged: the offsets of its messages.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.settings.storeconfig import parse_broker_conf
from tests.test_safety.support import message


def messages(seed: str, bulk: int, body: int) -> Iterator[MessageExtBrokerInner | None]:
    """Messages without end, a few hundred at a time."""
    chance = random.Random(seed)
    number = 0
    while True:
        for _ in range(chance.randint(1, bulk)):
            number += 1
            size = chance.choice((0, chance.randint(1, body), body))
            yield message(number, body=chance.randbytes(size), keys=chance.randint(0, 3))
        yield None


def main() -> None:
    plan = json.loads(sys.argv[1])
    config = parse_broker_conf(plan["conf"])
    with MessageStore(Path(plan["store"]), config, writable=True, create=True) as store:
        os.write(1, b"open\n")
        if plan.get("services"):
            store.start()
        stream = messages(plan["seed"], plan["bulk"], plan["body"])
        for results in store.put_stream(stream, flush=not plan.get("services")):
            rows = [
                [r.append.wrote_offset, r.topic, r.queue_id, r.append.queue_offset]
                for r in results
                if r.append is not None
            ]
            os.write(1, (json.dumps(rows) + "\n").encode())


if __name__ == "__main__":
    main()
