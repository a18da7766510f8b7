"""A store of 5.3.3 that was upgraded to 5.5.0, whose index has items of tags from there on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.record.record import Record
from rmqctl.engine.settings.storeconfig import MessageStoreConfig, parse_broker_conf
from rmqctl.operations.mend.rebuild import plan_rebuild, rebuild_in_place, rebuild_to
from rmqctl.operations.verify import Finding, verify
from tests import golden_data
from tests.golden_data import copy_tree, index_contents, tree_content
from tests.interop.stores import conf_text

SAID = json.loads((golden_data.LATER / "upgraded.json").read_text("utf-8"))
CONFIG: MessageStoreConfig = parse_broker_conf(conf_text(SAID["config"]))


@pytest.fixture
def store(golden_directory: Path, tmp_path: Path) -> Path:
    golden = golden_data.unpacked("upgraded", golden_directory, golden_data.LATER)
    return copy_tree(golden, tmp_path / "store")


def findings(root: Path) -> list[Finding]:
    return [found for found in verify(root, CONFIG) if isinstance(found, Finding)]


def tagged(root: Path) -> list[Record]:
    """The indexed messages that have tags."""
    with MessageStore(root, CONFIG) as opened:
        records = [one for one in opened.commit_log.walk() if isinstance(one, Record)]
    rolled_back = 3 << 2
    return [
        one
        for one in records
        if one.properties.get("TAGS") and one.sys_flag & rolled_back != rolled_back
    ]


def found_by_tag(root: Path) -> set[int]:
    """The physical offsets of the messages that a query by their tags finds."""
    with MessageStore(root, CONFIG) as opened:
        return {
            hit.record.physical_offset
            for topic, tag in {(one.topic, one.properties["TAGS"]) for one in tagged(root)}
            for hit in opened.query_message(topic, f"T#{tag}")
            if hit.matches and hit.record is not None
        }


def test_it_is_sound_and_tags_find_what_the_newer_engine_has_stored(store: Path) -> None:
    assert findings(store) == []
    offsets = {one.physical_offset for one in tagged(store)}
    newer = {offset for offset in offsets if offset >= SAID["upgraded_at"]}
    assert found_by_tag(store) == newer and newer < offsets


def test_a_copy_without_the_database_is_sound(store: Path) -> None:
    shutil.rmtree(store / "rocksdbstore")
    assert findings(store) == []


def test_what_is_made_anew_has_the_tags_of_all(store: Path, tmp_path: Path) -> None:
    rebuild_to(plan_rebuild(store, CONFIG, "all"), tmp_path / "built")
    assert tree_content(tmp_path / "built/consumequeue") == tree_content(store / "consumequeue")
    rebuild_in_place(plan_rebuild(store, CONFIG, "index"))
    assert index_contents(store / "index") == index_contents(tmp_path / "built/index")
    assert findings(store) == []
    assert found_by_tag(store) == {one.physical_offset for one in tagged(store)}


def test_puts_go_on_as_the_newer_engine_does(store: Path) -> None:
    with MessageStore(store, CONFIG, writable=True) as opened:
        for number in range(20):
            properties = {"TAGS": f"put{number % 3}", "KEYS": f"k{number}"}
            message = MessageExtBrokerInner("TopicA", b"x", properties=properties)
            assert opened.put_message(message, flush=False).is_ok
    assert findings(store) == []
    with MessageStore(store, CONFIG) as opened:
        assert sum(hit.matches for hit in opened.query_message("TopicA", "T#put1")) == 7


def test_items_that_are_lost_are_told(store: Path) -> None:
    """Those of keys are; those of tags need not be there."""
    max((store / "index").iterdir()).unlink()
    assert [found.code for found in findings(store)] == ["index-behind"]
