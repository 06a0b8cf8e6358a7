"""One registry, every property over every optimizer; AdamW takes torch's own part of the suite, to prove it fair."""

from __future__ import annotations

import pytest
import torch

from lopt.testing import CONTRACT, LEARNED, Subject, registry

ADAMW = Subject(
    "torch.optim.AdamW", lambda params, **o: torch.optim.AdamW(params, foreach=False, **{"weight_decay": 0.0, **o})
)
OURS = registry()


@pytest.mark.parametrize("check", CONTRACT, ids=lambda c: c.__name__)
@pytest.mark.parametrize("subject", [*OURS, ADAMW], ids=lambda s: s.name)
def test_contract(subject, check):
    check(subject)


@pytest.mark.parametrize("check", LEARNED, ids=lambda c: c.__name__)
@pytest.mark.parametrize("subject", OURS, ids=lambda s: s.name)
def test_learned(subject, check):
    check(subject)
