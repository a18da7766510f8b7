"""Queues that enableMultiDispatch has filled, under a broker.conf that does not explain them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from formats.constants import LMQ_PREFIX
from rmqctl.engine.messagestore import MessageStore
from rmqctl.engine.record.message import MessageExtBrokerInner
from rmqctl.engine.services.multiqueues import as_written
from rmqctl.engine.settings.storeconfig import MessageStoreConfig, parse_broker_conf
from rmqctl.errors import QueuesUnexplained
from rmqctl.operations.mend.missing import add_missing
from rmqctl.operations.mend.rebuild import plan_rebuild, plan_row, rebuild_in_place, rebuild_to
from rmqctl.operations.verify import Finding, Summary, verify
from tests.golden_data import state, tree_content

Copy = Callable[[str], Path]

SMALL = """\
mappedFileSizeCommitLog=65536
mappedFileSizeConsumeQueue=1000
maxHashSlotNum=100
maxIndexNum=1000
"""
MULTI, LMQ = "enable_multi_dispatch", "enable_lmq"
#: What a broker.conf says of the switches with which the store was not written.
CONTRADICTIONS = {
    "enableMultiDispatch=false": {MULTI},
    "enableMultiDispatch=true\nenableLmq=false": {LMQ},
    "enableLmq=false": {LMQ},
    "enableMultiDispatch=false\nenableLmq=true": {MULTI},
    "enableMultiDispatch=false\nenableLmq=false": {MULTI, LMQ},
}


def conf(switches: str = "") -> MessageStoreConfig:
    return parse_broker_conf(SMALL + switches)


def findings(root: Path, config: MessageStoreConfig) -> list[Finding]:
    return [found for found in verify(root, config) if not isinstance(found, Summary)]


def codes(root: Path, config: MessageStoreConfig) -> set[str]:
    return {found.code for found in findings(root, config)}


def put(root: Path, config: MessageStoreConfig, names: str, count: int = 12) -> None:
    with MessageStore(root, config, writable=True, create=True) as store:
        for number in range(count):
            properties = {"INNER_MULTI_DISPATCH": names}
            message = MessageExtBrokerInner(
                "orders", b"%d" % number, number % 4, properties=properties
            )
            assert store.put_message(message, flush=False).is_ok


@pytest.mark.parametrize("switches", CONTRADICTIONS)
def test_light_queues_are_rebuilt_as_they_were_written(copy_store: Copy, switches: str) -> None:
    """As 332 units of a store went, and verify found nothing then."""
    root, config = copy_store("lmq"), conf(switches)
    assert as_written(root, config).overruled == CONTRADICTIONS[switches]
    before = tree_content(root / "consumequeue")
    assert codes(root, config) == {"multi-dispatch-contradicted"}
    plan = plan_rebuild(root, config, "all")
    assert plan_row(plan, None, purge=False)["overruled"] == plan.config.overruled_names != []
    rebuild_in_place(plan)
    assert tree_content(root / "consumequeue") == before
    rebuild_in_place(plan_rebuild(root, config, "queues", f"{LMQ_PREFIX}dev1"))
    assert tree_content(root / "consumequeue") == before
    shutil.rmtree(root / "consumequeue" / f"{LMQ_PREFIX}dev1")
    assert "queue-missing" in codes(root, config)
    add_missing(root, config, "queues")
    assert tree_content(root / "consumequeue") == before


@pytest.mark.parametrize(
    "switches", ["", "enableMultiDispatch=true", "enableMultiDispatch=true\nenableLmq=true"]
)
def test_a_configuration_that_explains_them_is_taken_as_it_is(
    copy_store: Copy, switches: str
) -> None:
    root, config = copy_store("lmq"), conf(switches)
    assert as_written(root, config) is config
    assert codes(root, config) == set()
    assert plan_row(plan_rebuild(root, config, "all"), None, purge=False)["overruled"] == []


def test_further_queues_that_are_no_light_ones(copy_store: Copy) -> None:
    """Their names tell nothing: their units do."""
    root = copy_store("lmq")
    for path in (root / "consumequeue").glob(f"{LMQ_PREFIX}*"):
        shutil.rmtree(path)
    config = conf("enableMultiDispatch=false")
    assert as_written(root, config).overruled == {MULTI}
    assert "queue-missing" in codes(root, config)
    rebuild_in_place(plan_rebuild(root, config, "queues"))
    assert codes(root, config) == {"multi-dispatch-contradicted"}
    assert len(list((root / "consumequeue").glob(f"{LMQ_PREFIX}*"))) == 6


def test_light_queues_of_which_nothing_can_be_read(copy_store: Copy) -> None:
    root, config = copy_store("lmq"), conf("enableMultiDispatch=false")
    before = tree_content(root / "consumequeue")
    for path in (root / "consumequeue").glob("*/*/*"):
        if not path.is_relative_to(root / "consumequeue" / "TopicL"):
            path.write_bytes(bytes(path.stat().st_size))
    rebuild_in_place(plan_rebuild(root, config, "queues"))
    assert tree_content(root / "consumequeue") == before


def test_further_queues_that_are_gone_are_told(copy_store: Copy) -> None:
    root, config = copy_store("lmq"), conf("enableMultiDispatch=false")
    for path in (root / "consumequeue").iterdir():
        if path.name != "TopicL":
            shutil.rmtree(path)
    (found,) = findings(root, config)
    assert (found.code, found.severity) == ("multi-dispatch-queue-missing", "warning")
    assert found.expected == "221 units in 8 queues, this one the first"
    assert (found.topic, found.queue_id, found.physical_offset) == ("%LMQ%all", 0, 232)
    # The step that it names.
    rebuild_in_place(plan_rebuild(root, conf("enableMultiDispatch=true"), "queues"))
    assert codes(root, config) == {"multi-dispatch-contradicted"}


def test_copied_offsets_make_no_queue_without_multi_dispatch(tmp_path: Path) -> None:
    """A message that was sent back, or from one cluster to another, brings offsets along that are
    of no queue here: there a broker without enableMultiDispatch makes none, and nor does rmqctl."""
    root, config = tmp_path / "store", conf("enableMultiDispatch=false")
    with MessageStore(root, config, writable=True, create=True) as store:
        properties = {"INNER_MULTI_DISPATCH": "%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": "7"}
        assert store.put_message(MessageExtBrokerInner("T", b"x", properties=properties)).is_ok
    assert as_written(root, config) is config
    rebuild_in_place(plan_rebuild(root, config, "queues"))
    assert [path.name for path in (root / "consumequeue").iterdir()] == ["T"]
    assert codes(root, config) == {"multi-dispatch-queue-missing"}


def test_a_topic_with_a_light_queues_name_is_none(tmp_path: Path) -> None:
    root, config = tmp_path / "store", conf("enableMultiDispatch=false\nenableLmq=false")
    with MessageStore(root, config, writable=True, create=True) as store:
        for number in range(4):
            assert store.put_message(MessageExtBrokerInner("%LMQ%a", b"x", number)).is_ok
    assert as_written(root, config) is config
    assert as_written(root, conf()) is not None and not as_written(root, conf()).overruled


def test_light_queues_of_a_broker_without_light_queues(tmp_path: Path) -> None:
    """With enableMultiDispatch alone they have the numbers of their messages' queues."""
    root = tmp_path / "store"
    put(root, conf("enableMultiDispatch=true\nenableLmq=false"), "%LMQ%a,%LMQ%b")
    before = tree_content(root / "consumequeue")
    for switches in ("", "enableMultiDispatch=true\nenableLmq=true"):
        config = conf(switches)
        assert as_written(root, config).overruled == {LMQ}
        assert codes(root, config) == {"multi-dispatch-contradicted"}
        rebuild_in_place(plan_rebuild(root, config, "queues"))
        assert tree_content(root / "consumequeue") == before
    assert codes(root, conf("enableMultiDispatch=true\nenableLmq=false")) == set()


def test_queues_that_no_one_setting_explains_are_in_the_way(tmp_path: Path) -> None:
    """The switch was turned between the messages: either setting would take queues away."""
    root = tmp_path / "store"
    put(root, conf("enableMultiDispatch=true\nenableLmq=false"), "%LMQ%a")
    put(root, conf("enableMultiDispatch=true\nenableLmq=true"), "%LMQ%b")
    for switches, queues, units in (
        ("enableLmq=true", ["%LMQ%a/1", "%LMQ%a/2", "%LMQ%a/3"], 9),
        ("enableLmq=false", ["%LMQ%b/0"], 12),
    ):
        before = state(root)
        plan = plan_rebuild(root, conf(switches), "all")
        assert plan_row(plan, None, purge=False)["unexplained"] == queues
        for rebuild in (rebuild_in_place, lambda plan: rebuild_to(plan, tmp_path / "new")):
            with pytest.raises(QueuesUnexplained, match=f"{units} units") as refused:
                rebuild(plan)
            assert refused.value.exit_code == 6
        assert state(root) == before
        assert not (tmp_path / "new").exists()
        other = plan_rebuild(root, conf(switches), "queues", "orders")
        assert plan_row(other, None, purge=False)["unexplained"] == []
    for number in "123":
        shutil.move(root / "consumequeue" / "%LMQ%a" / number, tmp_path / number)
    rebuild_to(plan_rebuild(root, conf("enableLmq=true"), "all"), tmp_path / "new")
