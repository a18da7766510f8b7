"""A page of a mapped file cannot be had: the command ends with an error, and not by a signal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest

from rmqctl import kernel
from rmqctl.engine.scan.plain import PlainWanted
from rmqctl.lostpages import PageLost
from tests.conftest import Golden
from tests.golden_data import copy_tree

#: A command whose log is cut by somebody, after it was mapped and before it is read.
_READS_A_CUT_FILE = """
import os, sys
from rmqctl.cli.main import main
from rmqctl.engine.files.mappedfile import MappedFile

MappedFile.load = lambda self, start, end: os.truncate(self.path, 0)
main()
"""
_GETS_A_SIGNAL = """
import os, signal
from rmqctl.kernel import usable
from rmqctl.lostpages import tell_of_lost_pages

tell_of_lost_pages()
usable()
os.kill(os.getpid(), signal.SIGBUS)
"""


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env={**os.environ, kernel.VARIABLE: "compiled"},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.usefixtures("compiled")
def test_a_page_that_is_lost_ends_a_command_with_the_name_of_its_file(
    golden: Golden, tmp_path: Path
) -> None:
    root = tmp_path / "of topic é\x1b[1m"
    copy_tree(golden("basic"), root)
    command = "walk", "commitlog", "--format", "ndjson", "--store", str(root)
    done = run(_READS_A_CUT_FILE, *command)
    assert (done.returncode, done.stdout) == (PageLost.exit_code, "")
    # No control character of the name reaches a terminal.
    path = str(root / "commitlog" / f"{0:020}").replace("\x1b", "\N{REPLACEMENT CHARACTER}")
    assert done.stderr == f"error: {PageLost(path=path).for_command_line}\n"
    assert "dmesg" in done.stderr


@pytest.mark.usefixtures("compiled")
def test_a_signal_of_another_process_is_no_lost_page() -> None:
    done = run(_GETS_A_SIGNAL)
    assert (done.returncode, done.stderr) == (128 + signal.SIGBUS, "")


def test_what_the_system_says_of_a_read_has_its_number_and_words(
    compiled: ModuleType, tmp_path: Path
) -> None:
    """As Python's own errors: the next step depends on them."""
    descriptor = os.open(tmp_path, os.O_RDONLY)
    scanner = compiled.Scanner(check=True, properties=False, indexes_tags=True, threads=1)
    reader = compiled.IndexReader(descriptor, 10, 10)
    wanted = PlainWanted()._asdict()
    try:
        for read in (
            partial(scanner.plain, bytes(100), descriptor, [0], 100, 100, 0, **wanted),
            partial(reader.select, (1, 0, 1, False), None, 10),
        ):
            with pytest.raises(IsADirectoryError) as told:
                read()
            assert told.value.strerror == os.strerror(told.value.errno or 0)
    finally:
        os.close(descriptor)
