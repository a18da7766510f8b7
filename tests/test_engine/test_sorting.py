"""The fast order is the stable one."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.engine.scan.sorting import stable_order

SMALL = st.lists(st.integers(0, 5) | st.integers(0, 2**31 - 1), max_size=200)
LARGE = st.lists(st.integers(0, 3) | st.integers(0, 2**63 - 1), max_size=200)


@given(SMALL | LARGE)
def test_it_is_the_stable_order(numbers: list[int]) -> None:
    keys = np.array(numbers, np.int64)
    assert stable_order(keys).tolist() == np.argsort(keys, kind="stable").tolist()
