"""An index file that a task of a rebuild writes, and what its plan may not be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from formats.geometry import Geometry
from rmqctl.engine.settings.storeconfig import MessageStoreConfig
from rmqctl.errors import InternalError
from rmqctl.spark.mend.facts import KEY_DTYPE
from rmqctl.spark.mend.rebuildindex import _write_index_file
from rmqctl.spark.mend.rebuildjob import Job


@pytest.mark.parametrize(
    ("keys", "problem"), [(4, "was planned too small"), (0, "was planned without keys")]
)
def test_a_plan_that_does_not_fit_writes_no_file(tmp_path: Path, keys: int, problem: str) -> None:
    """A file of four items has room for three."""
    (tmp_path / "attempts").mkdir()
    job = Job(
        root="",
        output=str(tmp_path),
        attempts=str(tmp_path / "attempts"),
        config=MessageStoreConfig(),
        log_file_size=0,
        queue_file_size=0,
        ext_file_size=None,
        queues=False,
        index=True,
    )
    data = np.zeros(keys, KEY_DTYPE)
    data["key_hash"] = data["physical_offset"] = np.arange(keys) + 1
    rows = [{"data": data.tobytes(), "start": 0}] if keys else []
    with pytest.raises(InternalError, match=problem) as caught:
        _write_index_file(job, "20240101000000000", Geometry(10, 4), 0, rows)
    assert caught.value.exit_code == 70
    assert not (tmp_path / "index").exists()
