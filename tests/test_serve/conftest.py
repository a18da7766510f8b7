from __future__ import annotations

from collections.abc import Iterator

import pytest

from rmqctl.engine.messagestore import MessageStore
from rmqctl.serve.processors.request import Served
from tests import golden_data
from tests.conftest import Golden
from tests.test_serve.dialogue import Dialogue


@pytest.fixture
def dialogue(golden: Golden) -> Iterator[Dialogue]:
    """A broker's store, served read-only; that nothing of it changes is the fixture's own test."""
    with MessageStore(golden("broker"), golden_data.broker_conf("broker")) as store:
        yield Dialogue(Served.of(store))
