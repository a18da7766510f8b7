"""Stores of brokers in controller mode: epochs are read, written and cut as 5.3.3 does, and verify
names the records on which it does not start."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from rmqctl.engine.state.controller import Epoch, epochs_text, read_epochs, store_epochs, until
from rmqctl.operations.verify import Finding, verify
from tests.interop.engine import Engine, EngineError
from tests.interop.stores import Messages, config_of, settings

pytestmark = pytest.mark.parametrize(
    "version",
    [pytest.param("5.3.3", marks=pytest.mark.xdist_group("interop-5.3.3"))],
    indirect=True,
)


@pytest.mark.proves("controller", level="partly")
def test_epoch_files_are_read_and_cut_as_the_engine_does(
    engine: Engine, chance: random.Random, tmp_path: Path
) -> None:
    store = engine.open(tmp_path / "store", settings(chance, light_queues=False))
    path = tmp_path / "store" / "epochFileCheckpoint"

    def engines(cut: int = -1) -> list[str]:
        said: list[str] = engine.ask("epochs", store=store.name, path=str(path), cut=cut)
        return said

    epochs = (Epoch(1, 0), Epoch(2, 5000), Epoch(4, 70_000), Epoch(9, 1 << 40))
    for cut in (-1, 5001, 70_000, 1 << 50):
        path.write_text(epochs_text(epochs))
        kept = epochs if cut < 0 else until(epochs, cut)
        assert engines(cut) == [f"{one.epoch}-{one.start_offset}" for one in kept]
        # The file that the engine has written after it cut the epochs.
        assert path.read_text() == epochs_text(kept)
        read = read_epochs(path)
        assert read is not None and (read.epochs, read.problem) == (kept, "")

    backup = Path(f"{path}.bak")
    backup.write_text(epochs_text(epochs[:2]))
    for text in ("1\n5\n1-0\n", "3\n0\n1-0\n2-7\n", "1\n0\n1-0-0\n"):
        path.write_text(text)
        counts = store_epochs(path.parent)
        assert counts is not None and not counts.is_fatal and counts.epochs == epochs[:2]
        assert engines() == ["1-0", "2-5000"], text
    for text in ("", "x\n0\n1-0\n", "1\n0\n1-x\n", "1\n0\n99999999999-0\n"):
        path.write_text(text)
        counts = store_epochs(path.parent)
        assert counts is not None and counts.is_fatal, text
        with pytest.raises(EngineError, match="NumberFormatException"):
            engines()
    store.shutdown()


@pytest.mark.proves("controller", level="partly")
@pytest.mark.parametrize("is_long", [False, True])
def test_a_long_topic_keeps_a_broker_in_controller_mode_from_starting(
    engine: Engine, chance: random.Random, tmp_path: Path, is_long: bool
) -> None:
    values, root = settings(chance, light_queues=False), tmp_path / "store"
    messages = Messages(chance, values, engine.version)
    sent = [messages.plain() for _ in range(5)]
    if is_long:
        sent[3].topic = "%RETRY%" + "g" * 200
    store = engine.open(root, values)
    assert {row["status"] for row in store.put(sent)} == {"PUT_OK"}
    store.shutdown()
    (root / "epochFileCheckpoint").write_text(epochs_text((Epoch(1, 0),)))
    found = {one.code for one in verify(root, config_of(values)) if isinstance(one, Finding)}
    assert ("long-topic-not-confirmed" in found) == is_long, found
    # A broker starts before the controller has made it the master (``ReplicasManager#setFenced``).
    controlled = {**values, "enableControllerMode": True, "brokerRole": "SLAVE"}
    opened = engine.open(root, controlled)
    assert opened.is_open != is_long, opened.why
    if opened.is_open:
        opened.shutdown()
