"""What a start after a crash makes of an index that has lost files."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.engine.state.checkpoint import Checkpoint, write_checkpoint

CONFIG = MessageStoreConfig(
    mapped_file_size_commit_log=1 << 14, max_hash_slot_num=10, max_index_num=41
)
MESSAGES = 200
#: Between them and the next index file stand records that have no key.
KEYLESS = range(50, 60)


def killed_store(root: Path) -> list[Path]:
    """A store whose next start dispatches all of its log again; its index files."""
    with MessageStore(root, CONFIG, writable=True, create=True) as store:
        for number in range(MESSAGES):
            properties = {} if number in KEYLESS else {"KEYS": f"k{number}"}
            message = MessageExtBrokerInner("T", b"body" * 20, 0, properties=properties)
            assert store.put_message(message, flush=False).is_ok
    write_checkpoint(root, root / "checkpoint", Checkpoint())
    (root / "abort").touch()
    return sorted((root / "index").iterdir())


def hits(root: Path) -> list[int]:
    """How often each message is found by its key."""
    with MessageStore(root, CONFIG) as store:
        return [len(list(store.query_message("T", f"k{n}"))) for n in range(MESSAGES)]


@pytest.mark.parametrize("lost", [(0,), (1,), (0, 1), (2,), (4,), (1, 3)])
def test_keys_of_lost_files_are_found_again(tmp_path: Path, lost: tuple[int, ...]) -> None:
    """As the engine does, which throws all newer files away (``IndexService#load``)."""
    root = tmp_path / "store"
    files = killed_store(root)
    assert len(files) == 5
    for number in lost:
        files[number].unlink()
    with MessageStore(root, CONFIG, writable=True):
        pass
    assert hits(root) == [int(number not in KEYLESS) for number in range(MESSAGES)]
    with MessageStore(root, CONFIG) as store:
        headers = [store.index.open(path).header for path in store.index.paths]
    assert all(one.end_phy_offset < next_.begin_phy_offset for one, next_ in pairwise(headers))


def test_files_between_which_nothing_is_lost_stay(tmp_path: Path) -> None:
    root = tmp_path / "store"
    before = {path: path.read_bytes() for path in killed_store(root)}
    with MessageStore(root, CONFIG, writable=True):
        pass
    assert {path: path.read_bytes() for path in (root / "index").iterdir()} == before
