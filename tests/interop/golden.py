"""New golden data from the real engine, in the form of tests/golden.

    python -m tests.interop.golden damage CASE --what TEXT --ops OPS.json [--base basic]
    python -m tests.interop.golden damage CASE --seed N [--base basic]
    python -m tests.interop.golden store NAME --seed N [--count 300] [--dledger] [--before COUNT]

``damage`` does the operations (given, or random) to a copy of a golden store, starts RocketMQ 4.9.3
on it, and writes ``damage/CASE.json`` with what the engine did. ``store`` lets the engine write a
store of random messages, and packs it with the rows that the engine then says of it; with
``--dledger`` as the only member of a DLedger group, with ``--before`` COUNT others as a broker that
was in none. Both enter the new thing into ``index.json``; nothing that is there is overwritten.
"""

from __future__ import annotations

import argparse
import json
import lzma
import random
import subprocess
import tempfile
from pathlib import Path

from tests.golden_data import GOLDEN, INDEX, apply_damage, copy_tree, unpacked
from tests.interop.damage import random_damage
from tests.interop.engine import Engine, Row, build
from tests.interop.stores import Messages, settings

VERSION = "4.9.3"

#: A broker that is the only member of its group; its port is the driver's.
DLEDGER: Row = {"enableDLegerCommitLog": True, "dLegerGroup": "golden", "dLegerSelfId": "n0"}


def files_of(root: Path) -> dict[str, int]:
    """The files of a store that show what a start of the engine has left, with their lengths."""
    parts = ("commitlog", "consumequeue", "index", "dledger-n0")
    files = (path for part in parts for path in sorted((root / part).rglob("*")) if path.is_file())
    return {str(path.relative_to(root)): path.stat().st_size for path in files}


def what_the_engine_did(engine: Engine, root: Path, config: Row) -> Row:
    """What the engine did with a damaged store: the member ``engine`` of a damage case."""
    store = engine.open(root, config)
    if not store.is_open:
        return {"load": False}
    said = store.dump()
    store.shutdown()
    (ends,) = said["store"]
    return {
        "load": True,
        "minPhyOffset": ends["minPhyOffset"],
        "maxPhyOffset": ends["maxPhyOffset"],
        "messages": len(said.get("message", [])),
        "units": len(said.get("unit", [])),
        "queues": {
            f"{row['topic']}/{row['queueId']}": [row["minOffset"], row["maxOffset"]]
            for row in said["queue"]
            if row["maxPhysicOffset"] >= 0
        },
        "keysFound": sum(bool(row["physicalOffsets"]) for row in said.get("query", [])),
        "filesAfterStart": files_of(root),
    }


def add_damage(engine: Engine, arguments: argparse.Namespace, scratch: Path) -> None:
    target = new_file(GOLDEN / "damage" / f"{arguments.name}.json")
    root = copy_tree(unpacked(arguments.base, scratch), scratch / "damaged")
    if arguments.ops is not None:
        what, ops = arguments.what, json.loads(Path(arguments.ops).read_text("utf-8"))
    else:
        what, ops = random_damage(random.Random(arguments.seed), root)
    apply_damage(root, ops)
    did = what_the_engine_did(engine, root, INDEX["stores"][arguments.base]["config"])
    case = {"base": arguments.base, "what": what, "ops": ops, "engine": did}
    target.write_text(json.dumps(case, indent=1, ensure_ascii=False), "utf-8")
    enter("damage", arguments.name, {"what": what})


def add_store(engine: Engine, arguments: argparse.Namespace, scratch: Path) -> None:
    name = arguments.name
    archive = new_file(GOLDEN / f"{name}.tar.xz")
    chance = random.Random(arguments.seed)
    # No light queues in a log of DLedger: its encoder writes only the message's own queue.
    config = settings(chance, False if arguments.dledger else None)
    root = scratch / name
    messages = Messages(chance, config, VERSION)
    if arguments.before:
        store = engine.open(root, config)
        store.put(messages.take(arguments.before))
        store.shutdown()
    if arguments.dledger:
        config |= DLEDGER
    store = engine.open(root, config)
    store.put(messages.take(arguments.count))
    store.shutdown()
    command = ["tar", "-C", str(scratch), "--sparse", "-cJf", str(archive), name]
    subprocess.run(command, check=True)
    store = engine.open(root, config)
    said = store.dump()
    store.shutdown()
    files = [{"kind": "file", "path": p, "length": n} for p, n in files_of(root).items()]
    rows = [row for kind in said.values() for row in kind] + files
    with lzma.open(GOLDEN / f"{name}.expected.ndjson.xz", "wt", encoding="utf-8") as out:
        out.writelines(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
    enter("stores", name, {"config": config})


def new_file(path: Path) -> Path:
    if path.exists():
        raise SystemExit(f"{path} is there already; take another name")
    return path


def enter(part: str, name: str, value: Row) -> None:
    INDEX[part][name] = value
    text = json.dumps(INDEX, indent=1, ensure_ascii=False)
    (GOLDEN / "index.json").write_text(text, "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("kind", choices=["damage", "store"])
    parser.add_argument("name")
    parser.add_argument("--base", default="basic", help="the golden store that is damaged")
    parser.add_argument("--ops", help="a file with operations, as in the damage cases")
    parser.add_argument("--what", help="what they do, in words")
    parser.add_argument("--seed", help="random damage or messages: the same ones for the same seed")
    parser.add_argument("--count", type=int, default=300, help="messages of a store")
    parser.add_argument("--dledger", action="store_true", help="written by a DLedger broker")
    parser.add_argument("--before", type=int, default=0, help="messages before it became one")
    arguments = parser.parse_args()
    if (arguments.ops is None) == (arguments.seed is None) or bool(arguments.ops) != bool(
        arguments.what
    ):
        parser.error("give --seed, or --ops with --what")
    build()
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        engine = Engine(VERSION, scratch / "log")
        add = add_damage if arguments.kind == "damage" else add_store
        add(engine, arguments, scratch)
        engine.close()


if __name__ == "__main__":
    main()
