"""Batch queues: rebuilt with the engine's bytes, and the engine goes on with them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqctl.operations.mend.rebuild import plan_rebuild, rebuild_in_place
from tests.golden_data import tree_content
from tests.interop import batchstore
from tests.interop.engine import Engine
from tests.interop.stores import assert_clean, config_of

pytestmark = pytest.mark.parametrize(
    "version",
    [pytest.param("5.3.3", marks=pytest.mark.xdist_group("interop-5.3.3"))],
    indirect=True,
)


@pytest.mark.proves("batch-queues", level="partly")
def test_the_engine_goes_on_with_what_was_rebuilt(engine: Engine, tmp_path: Path) -> None:
    root, config = tmp_path / "store", config_of(batchstore.VALUES)
    # What is stored the second time goes on in the same files, and begins new ones.
    for _ in range(2):
        batchstore.write(engine, root)
        by_engine = tree_content(root / "batchconsumequeue")
        shutil.rmtree(root / "batchconsumequeue")
        # The empty directories stay: they tell which topics these are.
        (root / "batchconsumequeue" / batchstore.TOPIC).mkdir(parents=True)
        rebuild_in_place(plan_rebuild(root, config, "queues"))
        assert tree_content(root / "batchconsumequeue") == by_engine
        assert_clean(
            root,
            config,
        )
