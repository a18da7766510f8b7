"""The seed of all random choices of the tests, which is fixed unless asked otherwise.

A run of the tests is a verdict on a commit, so it uses a fixed seed. ``pytest --random`` uses a new
seed, and prints it. ``RMQCTL_TEST_SEED=N`` uses that seed again. ``-m nightly`` also uses a new
seed, and many more examples.
"""

from __future__ import annotations

import os
import random
import re

SEED_VARIABLE = "RMQCTL_TEST_SEED"
FIXED_SEED = "1"
_PROFILE_VARIABLE = "HYPOTHESIS_PROFILE"
#: The factor of examples and stores in a deep run.
_DEPTH = 20


def choose(is_random: bool, mark_expression: str) -> None:
    """Sets the seed and the depth for this process and the processes that it starts."""
    if asks_for_nightly(mark_expression):
        is_random = True
        os.environ.setdefault(_PROFILE_VARIABLE, "deep")
    os.environ.setdefault(
        SEED_VARIABLE, str(random.randrange(1 << 32)) if is_random else FIXED_SEED
    )


def asks_for_nightly(mark_expression: str) -> bool:
    """Whether ``-m`` asks for the nightly tests, and not for all others."""
    return re.search(r"(?<!\bnot )\bnightly\b", mark_expression) is not None


def seed() -> str:
    return os.environ[SEED_VARIABLE]


def is_fixed() -> bool:
    return seed() == FIXED_SEED


def profile() -> str:
    """The profile of hypothesis: ``quick`` or ``deep``."""
    return os.environ.get(_PROFILE_VARIABLE, "quick")


def is_deep() -> bool:
    return profile() == "deep"


def times(count: int) -> int:
    """How many examples or rounds to do, if a normal run does ``count``."""
    return count * _DEPTH if is_deep() else count
