"""Compacted topics of 5.3.3: what the engine writes and compacts is sound to verify."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop import compactionstore
from tests.interop.engine import Engine
from tests.interop.stores import assert_clean, config_of

pytestmark = pytest.mark.parametrize(
    "version",
    [pytest.param("5.3.3", marks=pytest.mark.xdist_group("interop-5.3.3"))],
    indirect=True,
)


@pytest.mark.proves("compaction", level="partly")
def test_what_the_engine_compacts_is_sound(engine: Engine, tmp_path: Path) -> None:
    root, config = tmp_path / "store", config_of(compactionstore.VALUES)
    # The second time what was compacted is compacted again, with more.
    for _ in range(2):
        first, second = compactionstore.write(engine, root)
        assert 0 < first < second
        assert_clean(root, config)
