"""The exported suite fails on optimizers with the faults it is about: a check that cannot fail proves nothing."""

from __future__ import annotations

import pytest
import torch

from lopt import SmallFCLOpt
from lopt.testing import CONTRACT, LEARNED, Subject

CHECKS = {check.__name__: check for check in [*CONTRACT, *LEARNED]}


class NeverCallsClosure(torch.optim.SGD):
    def step(self, closure=None):
        return super().step()


class ForgetsToMaximize(torch.optim.SGD):
    def __init__(self, params, maximize=False, **options):
        super().__init__(params, **options)


class HiddenBuffer(SmallFCLOpt):
    def step(self, closure=None, *, loss=None):
        self.buffer = getattr(self, "buffer", torch.zeros(())) + 1
        return super().step(closure, loss=loss)


class CastsOnLoad(SmallFCLOpt):
    load_state_dict = torch.optim.Optimizer.load_state_dict

    def __setstate__(self, state):
        torch.optim.Optimizer.__setstate__(self, state)


class ClipsTensorByTensor(SmallFCLOpt):
    def _prepare_gradients(self, slots, ok):
        limit = self.options["max_grad_norm"]
        for s in (s for own in slots for s in own if s.param.numel()):
            s.grad.scale = limit / s.grad.tensor.norm().clamp(min=limit) if limit else None


class CoupledDecay(torch.optim.Adam):
    pass


@pytest.mark.parametrize(
    ("optimizer", "check"),
    [
        (NeverCallsClosure, "check_closure_sees_gradients_enabled_and_its_loss_is_returned"),
        (ForgetsToMaximize, "check_maximize_turns_the_gradient"),
        (CoupledDecay, "check_weight_decay_is_decoupled"),
        (HiddenBuffer, "check_every_tensor_is_in_the_state_dict"),
        (CastsOnLoad, "check_loading_keeps_types_and_bits"),
        (ClipsTensorByTensor, "check_clipping_is_over_all_parameters"),
        (torch.optim.AdamW, "check_a_parameter_that_never_had_a_gradient_has_state"),
        (torch.optim.AdamW, "check_a_step_with_nan_is_skipped"),
    ],
)
def test_a_fault_is_caught(optimizer, check):
    weights = {"weights": "random:0"} if issubclass(optimizer, SmallFCLOpt) else {}
    subject = Subject("faulty", lambda params, **options: optimizer(params, **{**weights, **options}))
    with pytest.raises((AssertionError, TypeError)):
        CHECKS[check](subject)
