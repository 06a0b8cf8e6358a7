"""The five passes of a step in C++: kernels/lopt_step (sums to fold) and kernels/lopt_NAME_apply, behind torch operators.

`torch.ops.lopt.measure_` and `apply_` take the tensors of a whole step and the place of a loaded library. They are
registered with `torch.library.Library` (about 15 us a call, where `custom_op` costs 92) and have fake kernels, so that they can
stand in a compiled graph. Plan, scratch and addresses are the operators' own business.
"""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from metabench import kernel as kernels

from ..features import CELO2, SMALL_FC, VELO, Accumulators, Axes, Decays, FeatureSet
from ..models.mlp import MLP
from . import build, plan, tuned
from .reference import Gradient, Member

T = TypeVar("T")
RATES = (
    "gradient_scale",
    "step_scale",
    "exp_mult",
    "shrink",
    "shrink_after",
    "ok",
)  # enum Rate in kernels/lopt_step/plan.h
MEANS = 9  # mean p^2, means of v and m_k, variances of v and m_k
KERNELS = {SMALL_FC.name: "lopt_small_fc_apply", VELO.name: "lopt_velo_apply", CELO2.name: "lopt_celo2_apply"}


class Library(NamedTuple):
    """Two compiled sources of one feature set and width."""

    features: int
    measure: Any  # lopt_measure
    apply: Any  # lopt_NAME_apply


_libraries: list[
    Any
] = []  # an operator's arguments are numbers: a library, this or another backend's, is known by its place


@cache
def library(features: FeatureSet, hidden: int, config: tuple[tuple[str, Any], ...]) -> int:
    """Build or find the kernels for one feature set, width and configuration; their handle. BuildError if there is no way."""
    name = KERNELS[features.name]
    flags = compiler_flags(name)
    macros = {"EXTRA": int(features.extra), "RMS_EPS": f"{features.rms_eps}f", "DIAG_EPS": f"{features.diag_eps}f"}
    measure = build.load(kernels.root() / "lopt_step" / "measure.cpp", flags, macros).lopt_measure
    apply = getattr(build.load(kernels.find(name).source(".cpp"), flags, {"HIDDEN": hidden, **dict(config)}), name)
    measure.argtypes = [_P, _I, _P, _I, _P, _P, _F, _C, _P, _P, _P, _P, _P, _C]
    apply.argtypes = [_P] * 7 + [_P, _P, _I, _P, _P, _P, _P, _I, _F, _C, _C]
    measure.restype, apply.restype = None, _F
    _libraries.append(Library(features.size, measure, apply))
    return len(_libraries) - 1


_P, _I, _F, _C = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float, ctypes.c_int


def compiler_flags(name: str = KERNELS["small_fc"]) -> list[str]:
    """The flags that tuning used too: they are part of the kernel's definition."""
    return list(kernels.find(name).space_definition()["KernelSpecification"]["CompilerOptions"])


def serves(mlp: MLP, dtype: torch.dtype) -> bool:
    """The kernels have two hidden layers of one width, a multiple of 4 up to 128, and compute in float32."""
    hidden = mlp.widths[1]
    shape = len(mlp.widths) == 4 and mlp.widths[2] == hidden and mlp.widths[3] >= 2
    return shape and hidden % 4 == 0 and hidden <= 128 and dtype == torch.float32


def configuration(name: str, config: Mapping[str, Any] | None) -> tuple[tuple[str, Any], ...]:
    """The tunable parameters: those asked for, else the tuned entry's, else none (the source's defaults)."""
    names = [p["Name"] for p in kernels.find(name).space_definition()["ConfigurationSpace"]["TuningParameters"]]
    device = kernels.cpu_device(compiler_flags(name))
    chosen = config if config is not None else tuned.lookup(name, device, "cpu", "matrix", "float32") or {}
    unknown = sorted(set(chosen) - set(names))
    if unknown:
        raise ValueError(f"{name} has no parameter {', '.join(unknown)}; it has {', '.join(names)}")
    return tuple(sorted(chosen.items()))


class Batch(NamedTuple):
    """All tensors of one step that share meta-weights, device and state type."""

    params: list[Tensor]
    grads: list[Gradient]
    accumulators: list[Accumulators]
    axes: list[Axes | None]
    rates: Tensor  # (T, len(RATES))
    decays: Tensor  # (7,)

    @staticmethod
    def of(members: Sequence[Member], decays: Decays) -> Batch:
        """A batch of members that `served` accepts; gradients share their bound."""
        grads = [x.grad for x in members]
        columns = ([1.0 if g.scale is None else g.scale for g in grads], [x.step_scale for x in members],
                   [x.exp_mult for x in members], [x.shrink for x in members], [float(x.shrink_after) for x in members],
                   [1.0 if g.ok is None else g.ok for g in grads])  # fmt: skip
        rates = torch.stack([_column(x, members[0].param.device) for x in columns], 1)
        return Batch([x.param for x in members], grads, [x.accumulators for x in members], [x.axes for x in members],
                     rates, torch.cat([decays.momentum, decays.rms.reshape(1), decays.adafactor]))  # fmt: skip

    @property
    def step_scale(self) -> Tensor:
        """(T,)"""
        return self.rates[:, RATES.index("step_scale")]

    def scaled(self, step_scale: Tensor) -> Batch:
        """With other step scales, (T,): those that are known only after `measure_`."""
        at = RATES.index("step_scale")
        return self._replace(rates=torch.cat([self.rates[:, :at], step_scale[:, None], self.rates[:, at + 1 :]], 1))

    def arguments(self) -> tuple[list[Tensor], list[Tensor], list[Tensor], list[Tensor], list[Tensor]]:
        """p, g, m, v, factors: R and C of a factored tensor, D of another, one after the other."""
        a = self.accumulators
        factors = [x for one in a for x in (one.row, one.col, one.diag) if x is not None]
        return self.params, [g.tensor for g in self.grads], [x.m for x in a], [x.v for x in a], factors

    def rule(self) -> tuple[list[int], float, bool]:
        """axes as numbers (-1 for none), the bound of a gradient, whether NaN becomes 0."""
        first = self.grads[0]
        return flat_axes(self.axes), math.inf if first.bound is None else first.bound, first.replace_nan


def flat_axes(axes: Sequence[Axes | None]) -> list[int]:
    return [i for a in axes for i in ((-1, -1) if a is None else a)]


def _column(values: Sequence[float | Tensor], device: torch.device) -> Tensor:
    """Numbers and one-element tensors as (T,) float32; no tensor is read."""
    if not any(isinstance(x, Tensor) for x in values):
        return torch.tensor(values, dtype=torch.float32, device=device)
    return torch.stack([torch.as_tensor(x, dtype=torch.float32, device=device).reshape(()) for x in values])


def divide(handle: int | None, members: Sequence[Member]) -> tuple[list[int], list[int]]:
    """Places of those that a plan can hold, and of the others, which are stepped alone."""
    held = [handle is not None and plan.Form.of(x.param, x.grad.tensor, x.param, x.axes).served() for x in members]
    return [i for i, inside in enumerate(held) if inside], [i for i, inside in enumerate(held) if not inside]


def measure_(handle: int, batch: Batch) -> tuple[Tensor, Tensor]:
    """Accumulators in place; mean squares of the features (T, F) and `MEANS` of p and the old moments (T, 9)."""
    return torch.ops.lopt.measure_(*batch.arguments(), batch.rates, batch.decays, *batch.rule(), handle)


def apply_(handle: int, batch: Batch, mean_square: Tensor, bias: Tensor, network: Tensor) -> None:
    """p <- shrink p - step. bias: (T, h), the first layer's; network: (K,) for all tensors or (T, K), see `pack`."""
    arguments = (*batch.arguments(), batch.rates, mean_square, bias, network)
    torch.ops.lopt.apply_(*arguments, *batch.rule(), handle)


def direction(handle: int, batch: Batch, i: int, mean_square: Tensor, bias: Tensor, network: Tensor) -> Tensor:
    """shrink p - step of tensor i alone, float32, and p stays: all tensors at once would take a copy of the model."""
    one = Batch([batch.params[i]], [batch.grads[i]], [batch.accumulators[i]], [batch.axes[i]], batch.rates[i : i + 1],
                batch.decays)  # fmt: skip
    out = torch.empty(batch.params[i].shape, dtype=torch.float32)
    arguments = (*one.arguments(), one.rates, mean_square[i : i + 1], bias[i : i + 1], network)
    torch.ops.lopt.direction_([out], *arguments, *one.rule(), handle)
    return out


def on_one_thread(f: Callable[..., T], *arguments: Any) -> T:
    """f by one thread: PyTorch's matrix products add in another order on two, and a step's bits would tell how many there were.

    In a compiled graph as many as there are.
    """
    threads = 1 if torch.compiler.is_compiling() else torch.get_num_threads()
    if threads == 1:
        return f(*arguments)
    torch.set_num_threads(1)
    try:
        return f(*arguments)
    finally:
        torch.set_num_threads(threads)


def pack(features: int, weights: Sequence[Tensor], biases: Sequence[Tensor]) -> Tensor:
    """W1 (features, h), W2 (in, out), b2, W3 (2, h), b3 end to end, for one network or a stack of them: (..., K)."""
    first, hidden, last = weights
    parts = [first[..., :features].mT, hidden.mT, biases[1], last[..., :2, :], biases[2][..., :2]]
    lead = hidden.shape[:-2]
    return torch.cat([x.reshape(*lead, -1) for x in parts], -1)


# ---- the operators -----------------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _plan(forms: tuple[plan.Form, ...]) -> plan.Plan:
    return plan.plan(forms)


class _Layout(NamedTuple):
    """A plan, and its tensors' rows with this step's addresses."""

    plan: plan.Plan
    tensors: Tensor

    @staticmethod
    def of(p: list[Tensor], g: list[Tensor], out: list[Tensor], m: list[Tensor], v: list[Tensor], factors: list[Tensor],
           axes: list[int]) -> _Layout:  # fmt: skip
        pairs = pairs_of(axes)
        made = _plan(tuple(map(plan.Form.of, p, g, out, pairs)))
        return _Layout(made, made.filled(addresses(p, g, out, m, v, factors, pairs)))


def pairs_of(axes: list[int]) -> list[Axes | None]:
    """The inverse of `flat_axes`."""
    return [None if c < 0 else Axes(c, r) for c, r in zip(axes[::2], axes[1::2], strict=True)]


def addresses(
    p: list[Tensor], g: list[Tensor], out: list[Tensor], m: list[Tensor], v: list[Tensor], factors: list[Tensor],
    axes: list[Axes | None],
) -> list[list[int]]:  # fmt: skip
    """Seven lists in the order of `plan.POINTERS`. R is the slow moment where r > c; below two dimensions D is both."""
    slow, fast, rest = [], [], iter(factors)
    for pair in axes:
        first = next(rest).data_ptr()
        second = first if pair is None else next(rest).data_ptr()
        if pair is not None and pair.r < pair.c:
            first, second = second, first
        slow.append(first)
        fast.append(second)
    return [*([x.data_ptr() for x in xs] for xs in (p, g, out, m, v)), slow, fast]


def _measure(
    p: list[Tensor], g: list[Tensor], m: list[Tensor], v: list[Tensor], factors: list[Tensor], rates: Tensor,
    decays: Tensor, axes: list[int], bound: float, replace_nan: bool, handle: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    lib, (made, tensors) = _libraries[handle], _Layout.of(p, g, p, m, v, factors, axes)
    n = len(made.tiles)
    partials = torch.empty(made.partials)
    squares = torch.empty(n, lib.features, dtype=torch.float64)
    moments = torch.empty(n, MEANS, dtype=torch.float64)
    mean_square, means = torch.empty(len(p), lib.features), torch.empty(len(p), MEANS)
    rates, decays = rates.contiguous(), decays.contiguous()
    lib.measure(tensors.data_ptr(), len(p), made.tiles.data_ptr(), n, rates.data_ptr(), decays.data_ptr(), bound, replace_nan,
                partials.data_ptr(), squares.data_ptr(), moments.data_ptr(), mean_square.data_ptr(), means.data_ptr(),
                threads())  # fmt: skip
    torch.autograd.graph.increment_version([*m, *v, *factors])
    return mean_square, means


def _apply(p: list[Tensor], *rest: Any) -> None:
    _direction(p, p, *rest)


def _direction(
    out: list[Tensor], p: list[Tensor], g: list[Tensor], m: list[Tensor], v: list[Tensor], factors: list[Tensor], rates: Tensor,
    mean_square: Tensor, bias: Tensor, network: Tensor, axes: list[int], bound: float, replace_nan: bool, handle: int,
) -> None:  # fmt: skip
    made, tensors = _Layout.of(p, g, out, m, v, factors, axes)
    rates, mean_square, bias, network = (x.contiguous() for x in (rates, mean_square, bias, network))
    stride = network.shape[1] if network.ndim == 2 else 0
    _libraries[handle].apply(*[None] * 7, tensors.data_ptr(), made.tiles.data_ptr(), len(made.tiles), rates.data_ptr(),
                             mean_square.data_ptr(), bias.data_ptr(), network.data_ptr(), stride, bound, replace_nan,
                             threads())  # fmt: skip
    torch.autograd.graph.increment_version(out)


_parent = os.getpid()


def threads() -> int:
    """As many as torch uses; one in a forked child, where GNU's OpenMP has lost its threads and would wait for them."""
    return torch.get_num_threads() if os.getpid() == _parent else 1


def _fake_measure(p: list[Tensor], *rest: Any) -> tuple[Tensor, Tensor]:
    rates, handle = rest[4], rest[-1]
    return rates.new_empty(len(p), _libraries[handle].features), rates.new_empty(len(p), MEANS)


_operators = torch.library.Library("lopt", "DEF")
_TENSORS = "Tensor[] g, Tensor{0}[] m, Tensor{1}[] v, Tensor{2}[] factors, Tensor rates"
_RULE = "int[] axes, float bound, bool replace_nan, int handle"
_operators.define(
    f"measure_(Tensor[] p, {_TENSORS.format('(a!)', '(b!)', '(c!)')}, Tensor decays, {_RULE}) -> (Tensor, Tensor)"
)
_APPLY = f"{_TENSORS.format('', '', '')}, Tensor mean_square, Tensor bias, Tensor network, {_RULE}"
_operators.define(f"apply_(Tensor(a!)[] p, {_APPLY}) -> ()")
_operators.define(f"direction_(Tensor(a!)[] out, Tensor[] p, {_APPLY}) -> ()")
_operators.impl("measure_", _measure, "CPU")
_operators.impl("apply_", _apply, "CPU")
_operators.impl("direction_", _direction, "CPU")
torch.library.register_fake("lopt::measure_", _fake_measure, lib=_operators)
for _name in ("lopt::apply_", "lopt::direction_"):
    torch.library.register_fake(_name, lambda *_: None, lib=_operators)
