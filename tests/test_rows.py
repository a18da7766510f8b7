"""Rows are declared once: what a new field of one costs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: What one does by hand for a field of messages that ``walk`` prints and Spark has as a column:
#: the file, a line in it, and what stands there then.
NEW_FIELD = {
    "rmqctl/rows/structures.py": (
        '    topic: Annotated[str, "topic"]\n',
        '    topic: Annotated[str, "topic"]\n'
        '    topic_length: Annotated[Int32, BYTES, "size of the topic\'s name"]\n',
    ),
    "rmqctl/operations/look/rows.py": (
        '        "topic": record.topic,\n',
        '        "topic": record.topic,\n        "topic_length": len(record.topic_bytes),\n',
    ),
    "rmqctl/arrow/arrays.py": (
        "    def born_time(self) -> pa.Array:\n",
        "    def topic_length(self) -> pa.Array:\n"
        "        import pyarrow.compute as pc\n\n"
        "        return pc.binary_length(self.topic())\n\n"
        "    def born_time(self) -> pa.Array:\n",
    ),
}
#: What ``python -m rmqctl.reference`` writes for it.
GENERATED = {"docs/reference/rows.md"}

READ_ON_SPARK = """
import json, sys
from rmqctl.spark.source import splits
from rmqctl.arrow.arrays import ARROW_TYPES
from rmqctl.rows.columns import STRUCTURES, ddl
from rmqctl.spark.source.pushdown import Bounds
from rmqctl.spark.source.split import ReadSettings
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
import pyarrow as pa
config = MessageStoreConfig(mapped_file_size_commit_log=int(sys.argv[2]))
settings = ReadSettings("commitlog", [sys.argv[1]], config)
names = ["topic", "topic_length"]
kinds = {column.name: column.type for column in STRUCTURES["commitlog"]}
schema = pa.schema([(name, ARROW_TYPES[kinds[name]]) for name in names])
bounds = Bounds()
rows = [
    row
    for split in splits.plan(settings, bounds)
    for batch in splits.read(split, settings, bounds, schema)
    for row in batch.to_pylist()
]
print(json.dumps({"ddl": ddl("commitlog", names), "rows": rows}))
"""


#: What another process compiles meanwhile has a name of its own before it has its name, and may be
#: gone when it is to be copied; and what cargo leaves is large.
_PASSING = shutil.ignore_patterns("*.pyc.*", "target")


def test_a_new_field_of_a_message_touches_four_files(
    tmp_path: Path, golden: Callable[[str], Path]
) -> None:
    house, store = tmp_path / "house", golden("basic")
    for name in ("formats", "rmqctl", "docs"):
        # With times and what Python has compiled of them: only what changes is compiled again.
        shutil.copytree(ROOT / name, house / name, ignore=_PASSING)
    before = texts(house)
    for name, (old, new) in NEW_FIELD.items():
        text = (house / name).read_text()
        assert old in text, name
        (house / name).write_text(text.replace(old, new, 1))
    run(house, "-m", "rmqctl.reference")
    after = texts(house)
    assert {name for name in after if after[name] != before.get(name)} == {*NEW_FIELD, *GENERATED}
    row = "| `topic_length` | integer | bytes | size of the topic's name | `int` |"
    assert row in after["docs/reference/rows.md"].decode()

    (log_file, *_) = sorted((store / "commitlog").iterdir())
    size = str(log_file.stat().st_size)
    (house / "broker.conf").write_text(f"mappedFileSizeCommitLog={size}\n")
    walk = ("walk", "commitlog", "--store", str(store), "--broker-conf", "broker.conf")
    lines = run(house, "-m", "rmqctl", *walk, "--format", "ndjson").splitlines()
    walked = [row for row in map(json.loads, lines) if row["type"] == "message"]
    assert walked and all(row["topic_length"] == len(row["topic"].encode()) for row in walked)
    assert list(walked[0])[3:5] == ["topic", "topic_length"]

    read = json.loads(run(house, "-c", READ_ON_SPARK, str(store), size))
    assert "`topic_length` int COMMENT 'size of the topic\\'s name'" in read["ddl"]
    assert read["rows"] == [
        {name: row[name] for name in ("topic", "topic_length")} for row in walked
    ]


def texts(house: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(house)): path.read_bytes()
        for path in house.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def run(house: Path, *arguments: str) -> str:
    """Python in a copy of the project, whose modules come before the installed ones."""
    done = subprocess.run([sys.executable, *arguments], cwd=house, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout
