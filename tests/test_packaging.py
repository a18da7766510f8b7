"""What rmqctl is handed out as: the single file, the container, the citation."""

from __future__ import annotations

import importlib.util
import re
import sys
import sysconfig
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import rmqctl

ROOT = Path(__file__).resolve().parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def dev() -> ModuleType:
    spec = importlib.util.spec_from_file_location("dev", ROOT / "dev.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"


@pytest.mark.parametrize(
    ("python", "platform"), [("3.99", sysconfig.get_platform()), (HERE, "linux-vax")]
)
def test_the_single_file_says_where_it_runs(dev: ModuleType, python: str, platform: str) -> None:
    with pytest.raises(SystemExit) as refused:
        exec(dev.PREAMBLE.format(python=python, platform=platform), {})
    told = str(refused.value)
    assert f"for Python {python} on {platform}, and this is Python {HERE} on linux" in told
    assert told.count("\n") == 1 and f"Next: run it with python{python}" in told


def test_the_single_file_runs_where_it_was_made(dev: ModuleType) -> None:
    exec(dev.PREAMBLE.format(python=HERE, platform=sysconfig.get_platform()), {})
    assert dev.version() == rmqctl.__version__


def test_an_environment_that_holds_more_will_do(dev: ModuleType) -> None:
    assert dev.holds(".[dev,docs,zipapp]", ".[dev]") and dev.holds(".[dev]", ".")
    assert not dev.holds(".[dev]", ".[dev,docs,zipapp]") and not dev.holds(".", ".[dev]")
    extras = {name for one in dev.SETS for name in one.strip(".[]").split(",")} - {""}
    assert extras <= set(PROJECT["optional-dependencies"])


def test_the_single_files_page_names_it_as_it_is_made(dev: ModuleType) -> None:
    page = (ROOT / "docs/how-to/one-file.md").read_text()
    assert f"build/rmqctl-{dev.version()}-py311-linux-x86_64.pyz" in page


def test_the_citation_is_of_this_version() -> None:
    fields = dict(re.findall(r"^(\w[\w-]*): (.+)$", (ROOT / "CITATION.cff").read_text(), re.M))
    assert fields["version"] == PROJECT["version"] and fields["title"] == PROJECT["name"]


def test_the_container_gets_all_that_a_wheel_is_made_of() -> None:
    ignored = (ROOT / ".containerignore").read_text().split("\n")
    names = [PROJECT["readme"], *PROJECT["license-files"], "formats", "rmqctl", "hatch_build.py"]
    for name in names:
        assert (ROOT / name).exists() and name.split("/")[0] not in ignored, name
    steps = (ROOT / "Containerfile").read_text()
    for extra in re.findall(r"\[(\w+)\]'", steps):
        assert extra in PROJECT["optional-dependencies"]


def test_wheels_are_for_every_python_that_is_supported() -> None:
    """One with Python's stable interface from the oldest on serves all."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["cibuildwheel"]
    oldest = PROJECT["requires-python"].removeprefix(">=").replace(".", "")
    assert all(one.startswith(f"cp{oldest}-") for one in settings["build"].split())
    kernel = tomllib.loads((ROOT / "rmqctl/kernel/Cargo.toml").read_text())
    assert kernel["dependencies"]["pyo3"]["features"] == [f"abi3-py{oldest}"]
