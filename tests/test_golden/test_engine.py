"""The tests here run with the engine that their names say."""

from __future__ import annotations

import pytest

from rmqctl import kernel


def test_the_engine_is_the_one_of_the_name(
    request: pytest.FixtureRequest, tested_engine: str
) -> None:
    assert f"[{tested_engine}]" in request.node.name
    assert (kernel.module() is None) is (tested_engine == "pure")
