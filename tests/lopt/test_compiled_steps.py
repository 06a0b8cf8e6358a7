"""A step under torch.compile: one graph, the eager step's values, no recompilation when a tensor learning rate changes.

The `eager` backend shows what Dynamo makes of the step; what Inductor makes of a graph is torch's business.
"""

from __future__ import annotations

import pytest
import torch
import torch._dynamo.testing
from torch.utils.checkpoint import checkpoint

from lopt import SmallFCLOpt
from lopt.testing import registry
from lopt.testing.subject import give_gradients, parameters, step


@pytest.mark.parametrize(
    "subject", [s for s in registry() if s.name in ("small_fc", "velo", "celo2")], ids=lambda s: s.name
)
def test_one_graph_and_no_recompilation(subject):
    torch._dynamo.reset()
    compiled_params, eager_params = parameters([(8, 6), (6,)]), parameters([(8, 6), (6,)])
    rates = [torch.tensor(0.1), torch.tensor(0.1)]
    compiled = subject.make(compiled_params, lr=rates[0], max_grad_norm=1.0, weight_decay=0.1)
    eager = subject.make(eager_params, lr=rates[1], max_grad_norm=1.0, weight_decay=0.1)
    counter = torch._dynamo.testing.CompileCounter()
    loss = torch.tensor(2.0)
    take = torch.compile(lambda: step(subject, compiled, loss), backend=counter, fullgraph=True)
    for t in range(4):
        give_gradients(compiled_params, t)
        give_gradients(eager_params, t)
        take()
        step(subject, eager, loss)
        for rate in rates:
            rate.mul_(0.5)
        for x, y in zip(compiled_params, eager_params, strict=True):
            torch.testing.assert_close(x, y, rtol=0, atol=1e-6)
    assert counter.frame_count == 1


def test_a_compiled_model_and_activation_checkpointing():
    """Neither changes what the optimizer sees."""
    torch._dynamo.reset()
    results = []
    for forward in ("plain", "compiled", "checkpointed"):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
        call = {"plain": model, "compiled": torch.compile(model, backend="eager"),
                "checkpointed": lambda x, m=model: checkpoint(m, x, use_reentrant=False)}[forward]  # fmt: skip
        optimizer = SmallFCLOpt(model.parameters(), weights="random:0")
        x = torch.randn(4, 5)
        for _ in range(2):
            optimizer.zero_grad()
            call(x).square().mean().backward()
            optimizer.step()
        results.append(torch.cat([p.detach().reshape(-1) for p in model.parameters()]))
    torch.testing.assert_close(results[1], results[0], rtol=0, atol=1e-6)
    torch.testing.assert_close(results[2], results[0], rtol=0, atol=1e-6)
