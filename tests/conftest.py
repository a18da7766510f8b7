"""Fixtures and profiles that all tests share."""

from __future__ import annotations

import gc
import importlib
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from rmqctl import kernel
from tests import golden_data, seeds

#: Tests that run with the compiled kernel and with the pure engine: those of golden stores and
#: their damage, and of reading, checking, rebuilding and putting. Other tests compare the two
#: engines.
_BOTH_ENGINES = (
    "test_golden/",
    "test_operations/test_verify.py",
    "test_operations/test_verify_stretches.py",
    "test_operations/test_rebuild.py",
    "test_cli/test_export.py",
    "test_cli/test_lines.py",
    "test_cli/test_put.py",
    "test_cli/test_reading.py",
    "test_cli/test_rebuild.py",
    "test_engine/test_bulkappend.py",
    "test_engine/test_dispatch.py",
    "test_engine/test_getmessage.py",
    "test_engine/test_indexfile.py",
    "test_engine/test_messagestore.py",
    "test_engine/test_putmessage.py",
)

# There are no deadlines, because they measure the machine. Tests assert how long a command may take
# where that matters. If the variable CI is set, hypothesis always draws the same examples. That is
# turned off, because the seed of the tests decides it.
_COMMON: dict[str, Any] = {
    "deadline": None,
    "derandomize": False,
    "suppress_health_check": [HealthCheck.too_slow],
}
# Stores wait for the disk a lot, but no test is about the disk itself. So a file system in memory
# is used, if there is one with enough room: it makes the tests several times faster.
_MEMORY = Path("/dev/shm")
if _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > 2 << 30 and os.access(_MEMORY, os.W_OK):
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))
# If the environment forbids .pyc files, each of the hundreds of processes that the tests start
# would compile all modules of rmqctl that it imports, and each worker all tests.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--random",
        action="store_true",
        help="random stores, moments and examples of another seed than the fixed one",
    )


@pytest.hookimpl(tryfirst=True)  # before hypothesis reads its seed
def pytest_configure(config: pytest.Config) -> None:
    seeds.choose(config.getoption("--random"), config.option.markexpr)
    # Failed examples that hypothesis has stored are no part of the commit.
    database: dict[str, Any] = {"database": None} if seeds.is_fixed() else {}
    settings.register_profile("quick", max_examples=50, **_COMMON, **database)
    settings.register_profile("deep", max_examples=seeds.times(50), **_COMMON, **database)
    settings.load_profile(seeds.profile())
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = seeds.seed()


def pytest_sessionstart(session: pytest.Session) -> None:
    """Compiles the tests in a new clone. Each worker begins with other modules, and later finds
    those that other workers have compiled. Otherwise all would compile the same ones at the same
    time."""
    worker = getattr(session.config, "workerinput", None)
    if worker is None or session.config.args != session.config.getini("testpaths"):
        return
    top = Path(__file__).parent
    paths = sorted(top.rglob("test_*.py"))
    first = int(worker["workerid"].removeprefix("gw")) * len(paths) // worker["workercount"]
    for path in paths[first:] + paths[:first]:
        name = ".".join(path.relative_to(top.parent).with_suffix("").parts)
        try:
            importlib.import_module(name)
        except (Exception, pytest.skip.Exception):
            continue  # It is imported again when its tests are collected, which reports the error.


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """How many workers ``-n auto`` means: three more than there are cores. The tests of the engine
    and of Spark take three quarters of the time, and mostly wait for processes to start, stop or
    die. On two cores all long groups but one begin at once."""
    if os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS"):
        return None  # xdist reads the variable itself.
    return len(os.sched_getaffinity(0)) + 3


#: How many characters of an argument are in the name of a test.
_SHOWN_IN_A_NAME = 100


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """A short name for each long argument. pytest would use the whole text, and each worker sends
    the names of its tests to the main process: with bodies of megabytes that was 130 MB each."""
    if isinstance(val, str | bytes) and len(val) > _SHOWN_IN_A_NAME:
        return f"{argname} of {len(val)}"
    return None


#: Groups of tests, each of which one process runs, the longest first. Tests that read, and tests
#: that write, with the session of :mod:`tests.test_spark.conftest` are two groups: together they
#: took as long as all other tests in the other processes.
_LONG_GROUPS = (
    "spark",
    "interop-4.9.3",
    "interop-5.3.3",
    "spark-cluster",
    "interop-latest",
    "spark-writes",
    "spark-processes",
    "rooms",
)


def _place(item: pytest.Item) -> int:
    """The sort key of a test when several processes share the work: long tests come first, so that
    no process waits for one at the end. ``dev.py`` makes xdist keep this order.

    :raises ValueError: the group of a test is unknown.
    """
    group = item.get_closest_marker("xdist_group")
    if group is not None:
        return _LONG_GROUPS.index(group.args[0])
    return len(_LONG_GROUPS) + (item.get_closest_marker("slow") is None)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Turns garbage collection off while tests are collected, and then freezes the objects, half a
    million, which exist as long as the process. So garbage collection never has to visit them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Selects nightly tests only if they are asked for. Then all tests with random choices are
    nightly tests.

    :raises UsageError: a test that needs a Spark session is in no group. Each process with such a
        test would start a session, which takes ten seconds of processor time.
    """
    for item in items:
        needs_session = "spark" in getattr(item, "fixturenames", ())
        if needs_session and item.get_closest_marker("xdist_group") is None:
            raise pytest.UsageError(f"{item.nodeid} needs a session of Spark: give it a group")
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=_place)
    if seeds.asks_for_nightly(config.option.markexpr):
        for item in items:
            if _draws_lots(item):
                item.add_marker(pytest.mark.nightly)
        return
    nightly = [item for item in items if item.get_closest_marker("nightly")]
    if nightly:
        config.hook.pytest_deselected(items=nightly)
        items[:] = [item for item in items if not item.get_closest_marker("nightly")]


def _draws_lots(item: pytest.Item) -> bool:
    fixtures = getattr(item, "fixturenames", ())
    function = getattr(item, "obj", None)
    return (
        "chance" in fixtures
        or "is_deep" in fixtures
        or bool(getattr(function, "is_hypothesis_test", False))
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs the tests of :data:`_BOTH_ENGINES` with each engine. In the nightly run a test with the
    fixture ``chance`` runs many times, unless its own marker says that it is already long."""
    path = os.path.relpath(metafunc.definition.path, Path(__file__).parent)
    if path.startswith(_BOTH_ENGINES) and not getattr(
        metafunc.function, "is_hypothesis_test", False
    ):
        metafunc.parametrize("tested_engine", _engines(), indirect=True)
    is_long = metafunc.definition.get_closest_marker("nightly")
    if seeds.is_deep() and "chance" in metafunc.fixturenames and not is_long:
        metafunc.parametrize("chance", range(seeds.times(1)), indirect=True)


def _engines() -> list[str]:
    """The engines that can be tested here, or the one that was asked for."""
    asked = os.environ.get(kernel.VARIABLE)
    if asked:
        return [asked]
    return ["pure"] if kernel.usable().module is None else ["compiled", "pure"]


@pytest.fixture(autouse=True)
def tested_engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """The engine with which a test of :data:`_BOTH_ENGINES` runs; none for other tests. All have
    this fixture, because pytest sets up none that is added when parameters are made."""
    engine: str | None = getattr(request, "param", None)
    if engine is not None:
        monkeypatch.setenv(kernel.VARIABLE, engine)
    return engine


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not seeds.is_fixed():
        again = f"{seeds.SEED_VARIABLE}={seeds.seed()}"
        terminalreporter.write_line(f"random tests: {again} runs the same ones again")


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> random.Random:
    """A random generator for this test, which does not depend on which other tests run."""
    return random.Random(f"{seeds.seed()} {request.node.name}")


@pytest.fixture
def is_deep() -> bool:
    """Whether to try everything that would be too much for a normal run."""
    return seeds.is_deep()


Golden = Callable[[str], Path]


@pytest.fixture(scope="session")
def golden_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory in which golden stores are unpacked. All workers of a run share it."""
    base = tmp_path_factory.getbasetemp()
    directory = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "golden-stores"
    directory.mkdir(exist_ok=True)
    return directory


@pytest.fixture(scope="session")
def golden(golden_directory: Path) -> Iterator[Golden]:
    """``golden(name)``: the path of an unpacked golden store, only for reading.

    At the end of the run it is checked that each of these stores is unchanged.
    """
    handed_out: dict[Path, dict[str, tuple[int, ...]]] = {}

    def path_of(name: str) -> Path:
        store = golden_data.unpacked(name, golden_directory)
        if store not in handed_out:
            handed_out[store] = golden_data.state(store)
        return store

    yield path_of
    for store, state in handed_out.items():
        assert golden_data.state(store) == state, f"a test has changed {store}"


@pytest.fixture(scope="session")
def broker_conf_file(golden_directory: Path) -> Callable[[str], Path]:
    """``broker_conf_file(name)``: a ``broker.conf`` with a golden store's settings."""

    def path_of(name: str) -> Path:
        path = golden_directory / f"{name}.{os.getpid()}.broker.conf"
        path.write_text(golden_data.broker_conf_text(name), "utf-8")
        return path

    return path_of


@pytest.fixture
def copy_store(golden: Golden, tmp_path: Path) -> Callable[[str], Path]:
    """``copy_store(name)``: a copy of a golden store that the test may change."""
    return lambda name: golden_data.copy_tree(golden(name), tmp_path / name)


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for the loopback address, and its key."""
    directory = tmp_path_factory.mktemp("tls")
    certificate, key = directory / "cert.pem", directory / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-subj", "/CN=localhost", "-days", "30000", "-addext"]
    command += ["subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key
