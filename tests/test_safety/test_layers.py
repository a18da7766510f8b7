"""The rooms: imports point left, and what must start fast loads little."""

from __future__ import annotations

import ast
import functools
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

#: One process reads all of the source, and not each.
pytestmark = pytest.mark.xdist_group("rooms")
TOP = Path(__file__).parents[2]
#: What each room may import of the others.
ROOMS = {
    "formats": {"formats"},
    "rmqctl/errors.py": {"rmqctl.limits"},
    "rmqctl/installed.py": set(),
    "rmqctl/limits.py": set(),
    "rmqctl/shell.py": set(),
    "rmqctl/rows": {"formats", "rmqctl.rows"},
    "rmqctl/kernel": {"formats", "rmqctl.errors", "rmqctl.kernel", "rmqctl.lostpages"},
    "rmqctl/engine": {
        "formats",
        "rmqctl.engine",
        "rmqctl.errors",
        "rmqctl.kernel",
        "rmqctl.shell",
    },
    "rmqctl/operations": {
        "formats",
        "rmqctl.arrow",
        "rmqctl.engine",
        "rmqctl.errors",
        "rmqctl.operations",
        "rmqctl.rows",
    },
    "rmqctl/arrow": {"formats", "rmqctl.arrow", "rmqctl.engine", "rmqctl.errors", "rmqctl.rows"},
    "rmqctl/library": {
        "formats",
        "rmqctl.arrow",
        "rmqctl.engine",
        "rmqctl.errors",
        "rmqctl.library",
        "rmqctl.operations",
        "rmqctl.rows",
    },
    "rmqctl/serve": {"formats", "rmqctl.engine", "rmqctl.errors", "rmqctl.serve"},
    "rmqctl/replicate": {
        "formats",
        "rmqctl.engine",
        "rmqctl.errors",
        "rmqctl.replicate",
        "rmqctl.serve",
    },
    "rmqctl/spark": {
        "formats",
        "rmqctl.arrow",
        "rmqctl.engine",
        "rmqctl.errors",
        "rmqctl.operations",
        "rmqctl.rows",
        "rmqctl.spark",
    },
}
#: The floors of each house, lowest first: a room uses rooms of lower floors only. A name is a
#: package or a module.
FLOORS = {
    "rmqctl.engine": [
        ["files"],
        ["record", "settings"],
        ["filters", "log", "state"],
        ["flush", "queue", "scan", "tiered", "timer"],
        ["dispatch", "read"],
        ["index"],
        ["derive"],
        ["start"],
        ["rehearsal", "write"],
        ["store"],
        ["messagestore"],
        ["services"],
    ],
    "rmqctl.operations": [
        ["progress"],
        ["look", "verify"],
        ["backup", "fleet", "mend"],
        ["change", "doctor"],
        ["repair"],
    ],
    "rmqctl.spark": [
        ["session"],
        ["mend", "remote"],
        ["sink"],
        ["source"],
        ["plugin", "report"],
        ["procedures"],
    ],
    "rmqctl.serve": [
        ["errors", "wire"],
        ["ha", "listening", "state", "telling"],
        ["processors"],
        ["events"],
        ["connection", "services", "tls"],
        ["broker", "readers", "writer"],
        ["metrics", "sockets"],
        ["hasockets", "scrape"],
    ],
    "rmqctl.replicate": [
        ["doubt", "errors", "events", "keeping"],
        ["credentials", "follower", "questions"],
        ["asker", "copy"],
        ["sockets"],
    ],
    "rmqctl.cli.browse": [["model"], ["widgets"], ["screens"], ["app"]],
}
#: The rooms of the compiled kernel, likewise; what they share lies beside them.
KERNEL_FLOORS = [
    ["bytes"],
    ["record"],
    ["index"],
    ["queue", "scan"],
    ["arrow", "put"],
    ["lines"],
    ["python"],
]
MOST_LINES = {"module": 400, "function": 60}
#: Packages that talk to a user or belong to one room.
FOREIGN = {"click", "rich", "textual", "pyspark", "pyarrow", "pandas"}
ENGINE_PACKAGES = {"numpy", "isal", "lz4", "zstandard", "rocksdict", "formats", "rmqctl"}


def sources(room: str) -> list[Path]:
    path = TOP / room
    return [path] if path.suffix else sorted(path.rglob("*.py"))


class Source(NamedTuple):
    """What these tests ask of a file; each is parsed once."""

    imports: tuple[ast.Import | ast.ImportFrom, ...]
    #: Names of functions and their lines.
    functions: tuple[tuple[str, int], ...]
    #: Lines that speak with a user or read the environment, and what of.
    talks: tuple[tuple[int, str], ...]


@functools.cache
def source(path: Path) -> Source:
    nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
    functions = [n for n in nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    return Source(
        tuple(node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)),
        tuple((n.name, (n.end_lineno or n.lineno) - n.lineno + 1) for n in functions),
        tuple(talks(nodes)),
    )


def talks(nodes: list[ast.AST]) -> Iterator[tuple[int, str]]:
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in ("print", "input", "exit"):
                yield node.lineno, node.func.id
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            name = f"{node.value.id}.{node.attr}"
            if name in ("os.environ", "os.getenv", "sys.exit", "sys.stdout"):
                yield node.lineno, name


def imported(path: Path) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """What imports anything in a file, anywhere, for type checking too."""
    return source(path).imports


@functools.cache
def imports(path: Path) -> tuple[str, ...]:
    """Every module that a file imports."""
    found: list[str] = []
    for node in imported(path):
        if isinstance(node, ast.Import):
            found += [name.name for name in node.names]
            continue
        assert node.level == 0, f"{path}: a relative import"
        assert node.module is not None
        if node.module == "rmqctl":
            found += [f"rmqctl.{name.name}" for name in node.names]
        else:
            found.append(node.module)
    return tuple(found)


@pytest.mark.parametrize("room", ROOMS)
def test_imports_point_left(room: str) -> None:
    allowed = ROOMS[room] | {"rmqctl.__version__"}
    if room in ("rmqctl/engine", "rmqctl/serve", "rmqctl/spark"):
        allowed |= {"rmqctl.installed"}
    for path in sources(room):
        for name in imports(path):
            if name.split(".")[0] not in ("rmqctl", "formats"):
                continue
            if name.startswith("formats."):
                name = "formats"
            assert any(name == ok or name.startswith(ok + ".") for ok in allowed), (
                f"{path.relative_to(TOP)} imports {name}"
            )


def house_of(path: Path) -> str:
    return ".".join(path.relative_to(TOP).with_suffix("").parts)


@functools.cache
def used_modules(path: Path) -> frozenset[str]:
    """Modules of this project that a file imports, by their own names."""
    found = set()
    for node in imported(path):
        names = [name.name for name in node.names]
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{name}" for name in names] + [str(node.module)]
        for name in names:
            place = TOP / name.replace(".", "/")
            if place.with_suffix(".py").is_file():
                found.add(name)
    return frozenset(found)


@pytest.mark.parametrize("house", FLOORS)
def test_every_arrow_between_rooms_points_downwards(house: str) -> None:
    floors = {room: number for number, rooms in enumerate(FLOORS[house]) for room in rooms}
    for path in sources(house.replace(".", "/")):
        name = house_of(path).removeprefix(f"{house}.")
        room = name.split(".")[0]
        if name in ("__init__", house):
            continue
        assert room in floors, f"{house}.{name} is on no floor"
        for used in used_modules(path):
            other = used.removeprefix(f"{house}.").split(".")[0]
            if used.startswith(f"{house}.") and other != room:
                assert floors[other] < floors[room], f"{house}.{name} imports {used}"


def test_the_picture_of_the_floors_is_this_one() -> None:
    page = (TOP / "docs/explanation/architecture.md").read_text("utf-8")
    drawn: dict[str, list[list[str]]] = {}
    house = ""
    for name, number, rooms in re.findall(r"^(rmqctl[\w.]+)? +(\d+)  (.+)$", page, re.MULTILINE):
        house = name or house
        drawn.setdefault(house, []).insert(0, rooms.split())
        assert int(number) + len(drawn[house]) == len(FLOORS[house]) + 1
    assert drawn == FLOORS


@pytest.mark.parametrize(
    "page", ["docs/explanation/architecture.md", "docs/how-to/extend.md", "CONTRIBUTING.md"]
)
def test_the_modules_that_a_page_names_are_there(page: str) -> None:
    named = re.findall(r"`((?:formats|rmqctl)/[^`]*)`", (TOP / page).read_text("utf-8"))
    assert named
    # What is written in capitals stands for any name.
    assert [n for n in named if not (TOP / n).exists() and not re.search(r"[A-Z]{4}", n)] == []


@pytest.mark.parametrize("house", FLOORS)
def test_a_rooms_door_names_what_other_rooms_use(house: str) -> None:
    lent: dict[str, set[str]] = {}
    for path in sources("rmqctl"):
        for used in used_modules(path):
            if used.startswith(f"{house}.") and used.count(".") == house.count(".") + 2:
                room = used.rpartition(".")[0]
                if not house_of(path).startswith(f"{room}."):
                    lent.setdefault(room, set()).add(used)
    rooms = {path.parent for path in sources(house.replace(".", "/")) if path.stem == "__init__"}
    assert lent or len(rooms) == 1, "a house with rooms that nobody uses"
    for room, modules in lent.items():
        text = (TOP / room.replace(".", "/") / "__init__.py").read_text("utf-8")
        door = ast.get_docstring(ast.parse(text))
        assert set(re.findall(r":mod:`~([\w.]+)`", door or "")) == modules, room


def test_rooms_of_the_kernel_use_lower_floors() -> None:
    source = TOP / "rmqctl" / "kernel" / "src"
    floor_of = {room: floor for floor, rooms in enumerate(KERNEL_FLOORS) for room in rooms}
    assert floor_of.keys() == {path.parent.name for path in source.glob("*/mod.rs")}
    for path in source.glob("*/*.rs"):
        room = path.parent.name
        if room == "tests":
            continue
        used = set(re.findall(r"\bcrate::(\w+)", path.read_text("utf-8"))) - {"layouts", room}
        for other in used:
            assert floor_of[other] < floor_of[room], f"{path.name} of {room} uses {other}"


def test_only_its_seams_ask_for_the_kernel() -> None:
    """Nobody else knows whether there is compiled code, but who tells the user of it."""
    asking = [
        house_of(path)
        for path in sources("rmqctl")
        if path.parent.name != "kernel"
        and any(used.startswith("rmqctl.kernel") for used in imports(path))
    ]
    scan = [f"rmqctl.engine.scan.{name}" for name in ("backend", "buffers", "compiled", "plain")]
    derived = ["rmqctl.engine.derive.writer", "rmqctl.engine.dispatch.byqueue"]
    index = [f"rmqctl.engine.index.{name}" for name in ("indexservice", "links", "newslots")]
    log, queue = ["rmqctl.engine.log.commitlog"], ["rmqctl.engine.queue.storing"]
    read = ["rmqctl.engine.read.lines"]
    write = ["rmqctl.engine.write.compiled", "rmqctl.engine.write.single"]
    assert asking == ["rmqctl.cli.main", *derived, *index, *log, *queue, *read, *scan, *write]


def test_modules_and_functions_stay_short() -> None:
    for path in [*sources("rmqctl"), *sources("formats")]:
        text = path.read_text("utf-8")
        is_generated = "Generated by `python -m" in text[:200]
        assert is_generated or text.count("\n") <= MOST_LINES["module"], path.relative_to(TOP)
        for name, lines in source(path).functions:
            assert lines <= MOST_LINES["function"], f"{path.relative_to(TOP)}: {name}"


@pytest.mark.parametrize(
    "room",
    [
        "formats",
        "rmqctl/errors.py",
        "rmqctl/rows",
        "rmqctl/kernel",
        "rmqctl/engine",
        "rmqctl/operations",
        "rmqctl/library",
        "rmqctl/arrow",
        "rmqctl/serve",
        "rmqctl/replicate",
    ],
)
def test_only_the_cli_talks_to_a_user(room: str) -> None:
    allowed = {"pyarrow"} if room in ("rmqctl/library", "rmqctl/arrow") else set()
    for path in sources(room):
        heads = {name.split(".")[0] for name in imports(path)}
        assert not heads & FOREIGN - allowed, f"{path.relative_to(TOP)}"


def test_only_browse_needs_textual_and_its_model_no_terminal() -> None:
    for path in sources("rmqctl"):
        heads = {name.split(".")[0] for name in imports(path)}
        house = house_of(path)
        if not house.startswith("rmqctl.cli.browse."):
            assert "textual" not in heads, house
        elif house.startswith("rmqctl.cli.browse.model."):
            assert not heads & FOREIGN, house


def test_the_engine_needs_little() -> None:
    for path in sources("rmqctl/engine"):
        heads = {name.split(".")[0] for name in imports(path)}
        others = heads - ENGINE_PACKAGES - set(sys.stdlib_module_names)
        assert not others, f"{path.relative_to(TOP)} imports {others}"


def test_the_rooms_below_neither_print_nor_ask_nor_read_the_environment() -> None:
    for room in (
        "formats",
        "rmqctl/engine",
        "rmqctl/operations",
        "rmqctl/library",
        "rmqctl/arrow",
        "rmqctl/serve",
        "rmqctl/replicate",
    ):
        for path in sources(room):
            if path.name == "generate.py":  # run by hand and in CI
                continue
            assert not source(path).talks, path.relative_to(TOP)


STEPS = """
import json, sys
from pathlib import Path
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.messagestore import MessageStore
config = MessageStoreConfig(mapped_file_size_commit_log=65536)
root = Path(sys.argv[1])
for _ in range(2):
    with MessageStore(root, config, writable=True, create=True) as store:
        put = MessageExtBrokerInner("t", b"x", properties={"KEYS": "k", "TAGS": "a"})
        assert store.put_message(put).is_ok
with MessageStore(root, config) as store:
    assert store.get_message("t", 0, 0).records
    assert [hit.matches for hit in store.query_message("t", "k")] == [True, True]
print(json.dumps(sorted(sys.modules)))
"""


def test_single_steps_load_no_heavy_package(fast_path: Path) -> None:
    """Opening, one put, one pull and one query: numpy alone would cost 70 ms."""
    done = subprocess.run(
        [sys.executable, "-c", STEPS, str(fast_path / "store")],
        cwd=TOP,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    modules = json.loads(done.stdout)
    assert "rmqctl.kernel" not in modules
    loaded = {name.split(".")[0] for name in modules}
    heavy = {"numpy", "construct", "orjson", "rich", "click", "pyspark", "pyarrow", "pandas"}
    assert not loaded & heavy
