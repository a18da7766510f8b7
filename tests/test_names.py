"""Names of tests."""

from __future__ import annotations

import pytest


def test_a_long_argument_is_not_in_the_name_of_its_test(request: pytest.FixtureRequest) -> None:
    """Of all tests that this run has collected."""
    names = [item.nodeid for item in request.session.items]
    assert [name[:200] for name in names if len(name) > 1000] == []


@pytest.mark.parametrize("text", [b"a" * 5000, "b" * 5000, b"c" * 5000])
def test_long_arguments_are_told_apart(request: pytest.FixtureRequest, text: str | bytes) -> None:
    assert request.node.name.startswith("test_long_arguments_are_told_apart[text of 5000")
