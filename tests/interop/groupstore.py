"""Makes a store of 5.3.3, of one member of a DLedger group of three, with entries of three terms
and an end that the group has not committed.

    python -m tests.interop.groupstore

writes ``tests/golden/later/dledger-group.tar.xz``, the store, and ``dledger-group.json`` beside it,
unless they are there. This has ``config``; ``committed`` and ``uncommitted``, the messages that the
group has committed and those that only this member has, in order (topic, queue, body); and
``leaders``, which member led in each term. The member leads when the two others stop, stores five
more messages, and stops, too.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from tests.golden_data import LATER, copy_tree
from tests.interop.engine import Engine, Row, build, message_row
from tests.interop.stores import Messages

NAME = "dledger-group"
VALUES: Row = {
    "mappedFileSizeCommitLog": 16384,
    "mappedFileSizeConsumeQueue": 1000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 1000,
    "enableLmq": False,
    "enableMultiDispatch": False,
    "enableDLegerCommitLog": True,
    "dLegerGroup": "golden",
}
TERMS, ALONE = 3, 5


def plain(messages: Messages, count: int) -> list[Row]:
    return [message_row(messages.plain()) for _ in range(count)]


def main() -> None:
    archive = LATER / f"{NAME}.tar.xz"
    if archive.exists():
        raise SystemExit(f"{archive} is there already; a better store is a new one")
    build()
    messages = Messages(random.Random(NAME), VALUES, "5.3.3")
    committed: list[Row] = []
    leaders: list[str] = []
    with tempfile.TemporaryDirectory() as directory:
        scratch = Path(directory)
        engine = Engine("5.3.3", scratch / "log")
        leaders.append(engine.ask("group", root=str(scratch / "group"), config=VALUES))
        for term in range(TERMS):
            if term:
                leaders.append(engine.ask("groupChange"))
            rows = plain(messages, 12)
            done = engine.ask("groupPut", messages=rows)
            assert {one["status"] for one in done} == {"PUT_OK"}, done
            committed += rows
        alone = plain(messages, ALONE)
        name: str = engine.ask("groupAlone", messages=alone)
        engine.close()
        packed = scratch / "packed"
        packed.mkdir()
        copy_tree(scratch / "group" / name, packed / NAME)
        (packed / NAME / "lock").unlink(missing_ok=True)
        command = ["tar", "-C", str(packed), "--sparse", "-cJf", str(archive), NAME]
        subprocess.run(command, check=True, env={**os.environ, "XZ_OPT": "-9e"})
    said: dict[str, Any] = {
        "config": {**VALUES, "dLegerSelfId": name},
        "committed": [named(row) for row in committed],
        "uncommitted": [named(row) for row in alone],
        "leaders": leaders,
    }
    archive.with_name(f"{NAME}.json").write_text(json.dumps(said, indent=1) + "\n", "utf-8")


def named(row: Row) -> Row:
    return {name: row[name] for name in ("topic", "queueId", "body")}


if __name__ == "__main__":
    main()
