"""A store of 5.3.3 that was upgraded to the newest version.

    python -m tests.interop.upgradedstore

writes ``tests/golden/later/upgraded.tar.xz`` and ``upgraded.json`` beside it, unless they are
there: random messages that the engine of 5.3.3 stored, and behind them some of that of 5.5.0, which
also gives each of its messages an index item of its tags. ``json`` has the settings, and the
physical offset of the first message of the newer engine.
"""

from __future__ import annotations

import json
import random
import subprocess
import tempfile
from pathlib import Path

from tests.golden_data import LATER
from tests.interop.engine import LATEST, Engine, build, build_latest
from tests.interop.stores import Messages, settings

NAME = "upgraded"


def main() -> None:
    archive = LATER / f"{NAME}.tar.xz"
    if archive.exists():
        raise SystemExit(f"{archive} is there already; a better store is a new one")
    build()
    build_latest()
    chance = random.Random(NAME)
    values = settings(chance, light_queues=False)
    messages = Messages(chance, values, LATEST)
    with tempfile.TemporaryDirectory() as directory:
        root, starts = Path(directory) / NAME, []
        for version in ("5.3.3", LATEST):
            engine = Engine(version, Path(directory) / "log")
            store = engine.open(root, values)
            starts.append(store.ends()["store"][0]["maxPhyOffset"])
            results = store.put(messages.take(150))
            assert {row["status"] for row in results} == {"PUT_OK"}
            store.settle()
            store.shutdown()
            engine.close()
        command = ["tar", "-C", directory, "--sparse", "-cJf", str(archive), NAME]
        subprocess.run(command, check=True)
    said = {"config": values, "upgraded_at": starts[1]}
    archive.with_suffix("").with_suffix(".json").write_text(json.dumps(said, indent=1) + "\n")


if __name__ == "__main__":
    main()
