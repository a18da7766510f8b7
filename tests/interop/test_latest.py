"""The newest version of the engine, for what every store has. Its tests are skipped, with the
reason, where its artefacts cannot be had."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop import (
    test_backup,
    test_batch_queues,
    test_broker,
    test_clean,
    test_compaction,
    test_later_versions,
    test_locks,
    test_pop,
    test_repair,
    test_round_trips,
    test_timer,
)
from tests.interop.engine import LATEST, Engine, NotAvailable, build_latest

test_rmqctl_writes = test_round_trips.test_rmqctl_writes_and_the_engine_reads
test_the_engine_writes = test_round_trips.test_the_engine_writes_and_rmqctl_reads
test_turns = test_round_trips.test_turns
store = test_broker.store
test_a_broker = test_broker.test_a_broker_runs_on_a_store_that_rmqctl_made
test_an_engine_keeps_writers_out = (
    test_locks.test_a_running_engine_keeps_writers_out_and_lets_readers_in
)
test_a_writer_keeps_the_engine_out = test_locks.test_a_writer_of_rmqctl_keeps_the_engine_out
test_a_backup_meanwhile = test_backup.test_a_store_that_the_engine_writes_meanwhile
test_a_log_that_was_cut = test_repair.test_the_engine_starts_on_a_log_whose_last_file_was_cut
test_forms_of_records = test_later_versions.test_records_are_written_on_in_the_form_of_the_store
test_checkpoint_and_abort = test_later_versions.test_checkpoint_and_abort
test_compressed_bodies = test_later_versions.test_compressed_bodies
test_rebuilt_batch_queues = test_batch_queues.test_the_engine_goes_on_with_what_was_rebuilt
test_batch_queues_pulled = test_batch_queues.test_pulls_are_answered_as_by_the_engine
test_compacted_topics = test_compaction.test_what_the_engine_compacts_is_sound
test_clean_deletes = test_clean.test_clean_deletes_what_the_engine_deletes
test_a_timer_made_anew = test_timer.test_the_brokers_classes_read_a_timer_made_anew


@pytest.fixture(scope="session")
def built() -> None:
    try:
        build_latest()
    except NotAvailable as problem:
        pytest.skip(str(problem))


@pytest.fixture(
    scope="session", params=[pytest.param(LATEST, marks=pytest.mark.xdist_group("interop-latest"))]
)
def version(request: pytest.FixtureRequest) -> str:
    wanted: str = request.param
    return wanted


@pytest.mark.nightly
def test_popped_messages(engine: Engine, tmp_path: Path) -> None:
    test_pop.test_what_is_not_acknowledged_comes_back(engine, tmp_path)
