"""The optimizers of the zoo, as a parameter of tests: an entry that is added is tested without being named here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from evotune import zoo
from metabench import registry


@pytest.fixture(params=zoo.names())
def make(request: pytest.FixtureRequest) -> Callable[[], Any]:
    """Each optimizer of the zoo, loaded from its file."""
    return registry.make(request.param)
