"""Errors speak to programs; the command line adds the names of its options."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import rmqctl
from rmqctl.engine.messagestore import MessageStore
from rmqctl.errors import BadInputLine, NeedsConsent, NotAStore, RmqctlError, StoreNotFound

#: An option, but for those of a command that is quoted.
_OPTION = re.compile(r"(?<![\w-])--[a-z]")


def classes(of: type[RmqctlError] = RmqctlError) -> Iterator[type[RmqctlError]]:
    yield of
    for one in of.__subclasses__():
        yield from classes(one)


def test_no_error_of_the_library_speaks_of_options() -> None:
    for module in pkgutil.walk_packages(rmqctl.__path__, "rmqctl."):
        if not module.name.startswith(("rmqctl.cli", "rmqctl.__main__", "rmqctl.spark")):
            importlib.import_module(module.name)
    found = {
        one.__name__
        for one in classes()
        if not one.__module__.startswith("rmqctl.cli")
        and _OPTION.search(re.sub(r"`[^`]*`", "", f"{one.template} {one.step}"))
    }
    assert found == set()


def test_the_command_line_adds_its_options(tmp_path: Path) -> None:
    with pytest.raises(StoreNotFound) as told:
        MessageStore(tmp_path / "none")
    assert str(told.value) == (
        f"there is no directory {tmp_path / 'none'}. Give a broker's storePathRootDir, or "
        "create=True for a new store."
    )
    assert "with --store (or RMQCTL_STORE)" in told.value.for_command_line
    with pytest.raises(NotAStore) as no_store:
        MessageStore(tmp_path)
    assert str(no_store.value).endswith("that holds commitlog/ and consumequeue/.")
    assert no_store.value.for_command_line.endswith("with --store.")
    consent = NeedsConsent(reason="{} goes.")
    assert str(consent) == "{} goes. Nothing was changed. It needs your consent."
    assert consent.for_command_line.endswith("Say --yes to do it, or --dry-run to see the plan.")


def test_a_refused_line_names_the_option_that_takes_it() -> None:
    values = {"source": "input", "line": 3, "reason": "no", "stored": 2}
    assert str(BadInputLine(**values)) == BadInputLine(**values).for_command_line
    told = BadInputLine(**values, ignored_by="ignore_unknown")
    assert told.for_command_line == f"{told} --ignore-unknown is for such lines."
