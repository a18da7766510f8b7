"""Trials: a golden store is damaged with a fault, verify checks it, and the fault is undone."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rmqctl import kernel
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.errors import RmqctlError
from rmqctl.kernel import VARIABLE
from rmqctl.operations.verify import ERROR, WARNING, Finding, verify
from tests import golden_data
from tests.faults.anatomy import Anatomy, dissect
from tests.faults.kinds import Fault, done, draw

#: Seconds after which a check counts as hanging; the stores have only some megabytes.
_HANGS = 120
#: How verify answers a fault: with an error or a warning, with an info only, or with nothing new.
FOUND, NOTED, MISSED = "found", "noted", "missed"


class Trial(NamedTuple):
    """A fault of a store, and how verify answered it. ``codes`` are those of the findings that the
    sound store does not have, or the name of the error that ended the check."""

    number: int
    store: str
    fault: Fault
    verdict: str
    codes: tuple[str, ...]
    seconds: float


@dataclass
class Subject:
    """A copy of a golden store, and verify's findings about it while it is sound."""

    name: str
    root: Path
    config: MessageStoreConfig
    anatomy: Anatomy
    sound: Counter[Finding]


def subjects(golden: Callable[[str], Path], directory: Path) -> list[Subject]:
    """A copy of each golden store below ``directory``."""
    found = []
    for name in golden_data.STORES:
        root = golden_data.copy_tree(golden(name), directory / name)
        config = golden_data.broker_conf(name)
        said = _said(root, config)
        assert not isinstance(said, RmqctlError)
        found.append(Subject(name, root, config, dissect(root, config), said))
    return found


def trials(stores: list[Subject], seed: str, numbers: range) -> Iterator[Trial]:
    """The trials with these numbers; seed and number decide what a trial is.

    :raises AssertionError: rmqctl's two engines have different findings, or undoing a fault did not
        give back the store as it was.
    :raises TimeoutError: verify hangs.
    """
    # Without the compiled kernel there is only one engine.
    engines = ("pure", "compiled") if kernel.usable().module is not None else ("pure",)
    for number in numbers:
        chance = random.Random(f"{seed} {number}")
        subject = chance.choice(stores)
        fault = draw(chance, subject.anatomy)
        started = time.process_time()
        with done(fault, subject.root), _watched(f"{number}: {fault}"):
            said = [_said_by(engine, subject) for engine in engines]
        seconds = time.process_time() - started
        same = all(_same(said[0], other) for other in said)
        assert same, f"{number}: {subject.name}: {fault}: the engines differ: {said}"
        verdict = _verdict(said[0], subject)
        yield Trial(number, subject.name, fault, *verdict, seconds / len(engines))


def _said_by(engine: str, subject: Subject) -> Counter[Finding] | RmqctlError:
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = engine
    try:
        return _said(subject.root, subject.config)
    finally:
        os.environ.pop(VARIABLE)
        if before is not None:
            os.environ[VARIABLE] = before


def _said(root: Path, config: MessageStoreConfig) -> Counter[Finding] | RmqctlError:
    try:
        return Counter(one for one in verify(root, config) if isinstance(one, Finding))
    except RmqctlError as error:
        return error


def _same(one: Counter[Finding] | RmqctlError, other: Counter[Finding] | RmqctlError) -> bool:
    if isinstance(one, RmqctlError) or isinstance(other, RmqctlError):
        return str(one) == str(other)
    return one == other


def _verdict(said: Counter[Finding] | RmqctlError, subject: Subject) -> tuple[str, tuple[str, ...]]:
    if isinstance(said, RmqctlError):
        return FOUND, (type(said).__name__,)
    new = said - subject.sound
    codes = tuple(sorted({one.code for one in new}))
    if any(one.severity in (ERROR, WARNING) for one in new):
        return FOUND, codes
    return (NOTED if new else MISSED), codes


@contextmanager
def _watched(what: str) -> Iterator[None]:
    def late(*_: object) -> None:
        raise TimeoutError(f"verify hangs: {what}")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(_HANGS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
