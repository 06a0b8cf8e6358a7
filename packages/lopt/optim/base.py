"""What every learned optimizer owes torch.optim: closures, groups, odd gradients, state that survives a save.

A learned optimizer derives from `LearnedOptimizer` and writes two methods, `init_state` (one parameter's state) and
`update` (one group's step). Everything here is independent of the mathematics.

State is made when a parameter is added, not at its first gradient: every rank of a distributed job, and every checkpoint,
then has the same keys whatever happened to have a gradient. State is float32 for half-precision parameters.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..features import Accumulators, Decays, wide_type
from ..step.reference import Gradient

NONFINITE = ("skip", "raise", "propagate")
# The largest gradient whose square float32 holds: beyond it the second moment is infinite, which is as bad as a NaN.
LARGEST_GRADIENT = 1.8446e19


@dataclass
class Slot:
    """One parameter in one step."""

    param: Tensor
    grad: Gradient
    state: dict[str, Any]
    name: str


class Active(NamedTuple):
    """One group in one step: the parameters that have a gradient."""

    group: dict[str, Any]  # lr, weight_decay, ...
    values: dict[str, Any]  # meta-weights, layout, ...
    slots: list[Slot]


class LearnedOptimizer(torch.optim.Optimizer):
    """Base of the learned optimizers; see the module docstring.

    `defaults` go into every param group and into `state_dict` (plain numbers and tensors); `options` hold for the whole
    optimizer and stay out of it; `group_options` are per group and stay out of it (meta-weights, layout).
    """

    group_options: tuple[str, ...] = ("weights", "layout")
    gradient_bound: float | None = None  # clip(g, -bound, bound), after global clipping
    replaces_nan = False  # with nonfinite="propagate", gradients pass nan_to_num, as in the reference of MuLO and ELO
    uses_loss = False  # whether a loss that is not finite makes the step one to skip

    def __init__(
        self,
        params: Any,
        defaults: dict[str, Any],
        *,
        options: dict[str, Any],
        group_options: dict[str, Any],
    ) -> None:
        if options["nonfinite"] not in NONFINITE:
            raise ValueError(f"nonfinite={options['nonfinite']!r}: choose one of {', '.join(NONFINITE)}")
        self.options = options
        self._group_defaults = group_options
        self._group_values: list[dict[str, Any]] = []
        self._loaded: dict[Any, Any] = {}
        self._pending: tuple[Tensor, list[str]] | None = None  # nonfinite="raise": flags of a step, not read yet
        super().__init__(params, defaults)

    # ---- what a learned optimizer writes -------------------------------------------------------------------------

    def init_state(self, p: Tensor, group: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
        """The state of one parameter before its first step."""
        raise NotImplementedError

    def update_groups(self, active: list[Active], ok: Tensor | None, loss: Any) -> None:
        """One step of all groups, in place. ok is False in a step to skip; None where that is out of the question."""
        for group, values, slots in active:
            for (device, dtype), own in by_type(slots).items():
                self.update(group, values, own, None if ok is None else ok.to(device), device, dtype)

    def update(
        self, group: dict[str, Any], values: dict[str, Any], slots: list[Slot], ok: Tensor | None,
        device: torch.device, dtype: torch.dtype,
    ) -> None:  # fmt: skip
        """One step of a group's parameters of one device and state type: their constants are made once."""
        raise NotImplementedError

    def prepare_group(self, values: dict[str, Any]) -> dict[str, Any]:
        """Check one group's options and load its meta-weights."""
        return values

    def load_once(self, cls: Any, spec: Any, **fallback: Any) -> Any:
        """Meta-weights, read once however many groups name them."""
        if not isinstance(spec, (str, Path)):
            return cls.from_pretrained(spec, **fallback)
        if (cls, spec) not in self._loaded:
            self._loaded[cls, spec] = cls.from_pretrained(spec, **fallback)
        return self._loaded[cls, spec]

    def placed(self, weights: Any, device: torch.device, dtype: torch.dtype) -> Any:
        """Meta-weights on a device, copied there once."""
        if weights.example.device == device and weights.example.dtype == dtype:
            return weights
        key = (id(weights), device, dtype)
        if key not in self._loaded:
            self._loaded[key] = weights.to(device, dtype)
        return self._loaded[key]

    # ---- torch.optim ---------------------------------------------------------------------------------------------

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters, at any time; the group may override lr, weight decay, and the group options."""
        param_group = dict(param_group)
        own = {k: param_group.pop(k, self._group_defaults[k]) for k in self.group_options}
        values = self.prepare_group(own)
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        check_group(group)
        self._group_values.append(values)
        for i, p in enumerate(group["params"]):
            if p.is_complex() or not p.is_floating_point() or p.layout != torch.strided:
                raise TypeError(
                    f"{parameter_name(group, i)} is {p.dtype} ({p.layout}): only dense real floating-point parameters"
                )
            self.state[p] = self.init_state(p, group, values)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None, *, loss: Tensor | float | None = None) -> Any:
        """Take one step. `closure` is evaluated with gradients enabled and its loss returned."""
        if closure is not None and not callable(closure):
            raise TypeError("step() takes a closure; pass a loss by name: opt.step(loss=loss)")
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._raise_pending()
        slots = self._slots()
        ok = self._finite(slots, loss)
        if ok is not None and _decided_here(ok):
            if not bool(ok):
                return loss
            ok = None
        self._prepare_gradients(slots, ok)
        every = zip(self.param_groups, self._group_values, slots, strict=True)
        active = [Active(*group) for group in every if group[2]]
        if active:
            self.update_groups(active, ok, loss)
        return loss

    def _slots(self) -> list[list[Slot]]:
        """The parameters that have a gradient, group by group."""
        found = []
        for group in self.param_groups:
            own = []
            for i, p in enumerate(group["params"]):
                if p.grad is None:
                    continue
                state, name = self.state[p], parameter_name(group, i)
                if p.grad.layout != torch.strided or p.grad.is_complex():
                    raise TypeError(
                        f"{name} has a gradient of layout {p.grad.layout}, {p.grad.dtype}: only dense real ones"
                    )
                sign = -1.0 if group["maximize"] else None
                replace = self.replaces_nan and self.options["nonfinite"] == "propagate"
                g = Gradient(p.grad, state_type(p), sign, self.gradient_bound, replace_nan=replace)
                own.append(Slot(p, g, state, name))
            found.append(own)
        return found

    def _finite(self, slots: list[list[Slot]], loss: Any) -> Tensor | None:
        """() bool on the first gradient's device: may this step be taken? None if nobody asked."""
        every = [s for own in slots for s in own if s.param.numel()]
        if self.options["nonfinite"] == "propagate" or not every:
            return None
        device = every[0].param.device
        largest = largest_magnitudes([s.grad.tensor for s in every])
        ok = torch.stack([x.to(device, torch.float32) for x in largest]) < LARGEST_GRADIENT  # False for NaN
        if self.options["nonfinite"] == "raise":
            self._pending = (ok, [s.name for s in every])
            if _decided_here(ok):
                self._raise_pending()
        ok = ok.all()
        if self.uses_loss and loss is not None:
            ok = ok & torch.isfinite(torch.as_tensor(loss, device=device)).all()
        return ok

    def _raise_pending(self) -> None:
        """nonfinite="raise": read the last step's flags. On the CPU in the step itself; elsewhere that would stop the
        device, so the step is skipped there by its flag, and the next step or `state_dict` raises."""
        if self._pending is None:
            return
        (ok, names), self._pending = self._pending, None
        if not bool(ok.all()):
            bad = ", ".join(name for name, fine in zip(names, ok.tolist(), strict=True) if not fine)
            raise FloatingPointError(
                f"gradient is not finite (or its square overflows): {bad}; that step changed nothing"
            )

    def _prepare_gradients(self, slots: list[list[Slot]], ok: Tensor | None) -> None:
        """Give each gradient the scale of global clipping and the flag of a skipped step."""
        every = [s for own in slots for s in own if s.param.numel()]
        limit = self.options.get("max_grad_norm")
        scale = clip_scale([s.grad.tensor for s in every], limit) if limit and every else None
        for s in every:
            if scale is not None:
                there = scale.to(s.param.device)
                s.grad.scale = there if s.grad.scale is None else there * s.grad.scale
            s.grad.ok = None if ok is None else ok.to(s.param.device)

    # ---- saving --------------------------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        own = ("options", "_group_defaults", "_group_values")
        return {**super().__getstate__(), **{k: self.__dict__[k] for k in own}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "options" in state:  # a copy or a pickle
            self._loaded, self._pending = {}, None
        else:  # from load_state_dict: state and param_groups only
            loaded = {p: self._checked(p, _unwrap(s, p)) for p, s in state["state"].items()}
            state = {**state, "state": defaultdict(dict, {**self.state, **loaded})}
        super().__setstate__(state)

    def _checked(self, p: Tensor, state: dict[str, Any]) -> dict[str, Any]:
        """A loaded state must be of the form that this optimizer made, because kernels trust it.

        Types are those saved, float32 for half parameters; only state from a run in another precision is converted.
        """
        shapes = [{k: tuple(x.shape) for k, x in s.items() if isinstance(x, Tensor)} for s in (self.state[p], state)]
        if shapes[0] != shapes[1]:
            differ = sorted(k for k in {*shapes[0], *shapes[1]} if shapes[0].get(k) != shapes[1].get(k))
            k = differ[0]
            raise ValueError(f"the state to load does not fit a parameter of shape {tuple(p.shape)}: {k!r} is "
                             f"{shapes[1].get(k, 'missing')}, should be {shapes[0].get(k, 'absent')}")  # fmt: skip
        own = self.state[p]
        return {k: x.to(own[k].dtype) if isinstance(x, Tensor) else x for k, x in state.items()}

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain numbers only."""
        self._raise_pending()
        return super().state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a checkpoint: every bit and type as saved (torch would cast float32 state to a half parameter's type).

        The tensors are copied, so the caller's dictionary and this optimizer share nothing.
        """
        hook = self.register_load_state_dict_pre_hook(_wrap_tensors)  # last: it sees what other hooks made of it
        try:
            super().load_state_dict(state_dict)
        finally:
            hook.remove()

    def __repr__(self) -> str:
        options = ", ".join(f"{k}={v!r}" for k, v in self.options.items() if v is not None)
        return f"{super().__repr__()[:-1]}  {options}\n)"


class _Kept:
    """A tensor that torch's load_state_dict must hand through uncast."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


def _wrap_tensors(_: torch.optim.Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
    def wrap(state: dict[str, Any]) -> dict[str, Any]:
        return {k: _Kept(x) if isinstance(x, Tensor) else x for k, x in state.items()}

    return {**state_dict, "state": {i: wrap(s) for i, s in state_dict["state"].items()}}


def _unwrap(state: Any, p: Any) -> Any:
    if not isinstance(state, dict):
        return state
    return {k: _copy(x.tensor, p.device) if isinstance(x, _Kept) else x for k, x in state.items()}


def _copy(x: Tensor, device: torch.device) -> Tensor:
    """Contiguous, as kernels want state, and nobody else's."""
    return x.detach().clone(memory_format=torch.contiguous_format).to(device)


def _decided_here(ok: Tensor) -> bool:
    """Whether reading the flag costs nothing: on the CPU, outside a compiled graph."""
    return ok.device.type == "cpu" and not torch.compiler.is_compiling()


def state_type(p: Tensor) -> torch.dtype:
    """float64 for float64 parameters, float32 for all others."""
    return torch.float64 if p.dtype == torch.float64 else torch.float32


def parameter_name(group: Mapping[str, Any], index: int) -> str:
    """The name given through `model.named_parameters()`, else what can be said about the parameter."""
    if "param_names" in group:
        return f"parameter {group['param_names'][index]!r}"
    return f"parameter {index} of its group, shape {tuple(group['params'][index].shape)}"


def check_group(group: Mapping[str, Any]) -> None:
    """lr, weight decay and what scales steps, of one group; raises ValueError."""
    for key in ("lr", "weight_decay"):
        value = group[key]
        if isinstance(value, Tensor) and value.numel() != 1:
            raise ValueError(f"a tensor {key} must have one element, this one has shape {tuple(value.shape)}")
        if not isinstance(value, Tensor) and not value >= 0:
            raise ValueError(f"{key}={value!r}: it must be a number of at least 0")
    for key in ("hidden_lr_mult", "lr_decay_steps"):
        value = group.get(key)
        if value is not None and not value > 0:
            raise ValueError(f"{key}={value!r}: it must be a positive number, or None for what the meta-weights say")


def largest_magnitudes(grads: list[Tensor]) -> Sequence[Tensor]:
    """max |g| of each gradient, (); NaN if there is one. The CPU's infinity norm takes fifteen times as long as `aminmax`."""
    if any(g.device.type != "cpu" for g in grads):
        return torch._foreach_norm(grads, float("inf"))
    ends = [torch.aminmax(g) for g in grads]
    return [torch.maximum(-low, high) for low, high in ends]


def clip_scale(grads: Iterable[Tensor], limit: float) -> Tensor:
    """limit / max(norm, limit), the norm over all gradients together, (); in float32 (float64) whatever the gradients are.

    Sums in the wide type: `vector_norm` does not sum pairwise, and a million elements would be 1e-5 off."""
    norms = [torch.linalg.vector_norm(g, dtype=wide_type(g.device)).to(state_type(g)) for g in grads]
    norm = torch.linalg.vector_norm(torch.stack([n.to(norms[0].device, norms[0].dtype) for n in norms]))
    return limit / norm.clamp(min=limit)


def by_type(slots: list[Slot]) -> dict[tuple[torch.device, torch.dtype], list[Slot]]:
    groups: dict[tuple[torch.device, torch.dtype], list[Slot]] = {}
    for s in slots:
        groups.setdefault((s.param.device, s.grad.dtype), []).append(s)
    return groups


def rates(group: Mapping[str, Any], device: torch.device) -> tuple[Any, Any]:
    """lr and 1 - lr * weight decay; a tensor lr stays a tensor."""
    lr = group["lr"].to(device) if isinstance(group["lr"], Tensor) else group["lr"]
    return lr, 1 - lr * group["weight_decay"]


def hold(decays: Decays, ok: Tensor | None) -> Decays:
    """In a skipped step every decay is 1: an accumulator becomes 1 x + 0 g."""
    return decays if ok is None else Decays(*(torch.where(ok, b, 1.0) for b in decays))


def accumulators(state: Mapping[str, Any]) -> Accumulators:
    return Accumulators(state["m"], state["v"], state.get("row"), state.get("col"), state.get("diag"))


def count_(slots: list[Slot], ok: Tensor | None) -> None:
    """step + 1 for each parameter, or + 0 in a skipped step; a list of tensors, because one tensor would be read here."""
    steps = [s.state["step"] for s in slots]
    if ok is None:
        torch._foreach_add_(steps, 1)
    else:
        torch._foreach_add_(steps, [ok.to(torch.int64)] * len(steps))
