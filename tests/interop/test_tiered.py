"""Tiered storage: rmqctl reads from uploaded files what their broker gives out of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.engine.tiered.store import TieredStore
from rmqctl.operations.verify.tiered import TieredSummary, verify_tiered
from tests import golden_data
from tests.interop import tieredstore
from tests.interop.engine import Engine, Row
from tests.interop.popstore import start


def assert_agrees(root: Path, said: Row) -> None:
    read = tieredstore.as_read(root, said)
    assert read["pulled"] == said["pulled"]
    assert read["queried"] == said["queried"]
    (summary,) = verify_tiered(TieredStore(root, MessageStoreConfig()))
    assert isinstance(summary, TieredSummary)
    assert summary.units == sum(len(records) for _, _, records in said["pulled"])


@pytest.mark.proves("tiered")
@pytest.mark.parametrize("version", ["5.3.3"])
@pytest.mark.parametrize("name", ["tiered", "tiered-killed"])
def test_what_its_broker_gave_out(name: str, version: str, golden_directory: Path) -> None:
    """rmqctl reads every record by its unit, byte for byte, and the index items of each key."""
    root = golden_data.unpacked(name, golden_directory, golden_data.LATER)
    assert_agrees(root, json.loads((golden_data.LATER / f"{name}.json").read_text("utf-8")))


@pytest.mark.nightly
@pytest.mark.parametrize(
    "version",
    [pytest.param("5.3.3", marks=pytest.mark.xdist_group("interop-5.3.3"))],
    indirect=True,
)
def test_what_a_broker_gives_out(engine: Engine, tmp_path: Path) -> None:
    """Of what it has just uploaded; then it is killed."""
    root = tmp_path / "store"
    start(engine, root, tieredstore.values_of(root), ["orders", "late"])
    sent = tieredstore.Sent({})
    sent.more(engine, tieredstore.SENT[0])
    sent.await_upload(engine, tieredstore.SENT[0])
    said = sent.answers(engine)
    engine.kill()
    assert_agrees(root, said)
