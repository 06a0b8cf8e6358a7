"""The five passes of a step on a GPU: kernels/lopt_step/lopt_step.cu behind the operators of the C++ backend.

The source is compiled by nvcc on first use, for the device at hand, and called through ctypes with PyTorch's current stream; no
value is read back. It has been compiled for three generations of devices and run on the CPU through
kernels/lopt_step/cuda/on_cpu.h, which proves its indices and its arithmetic. It has not been run on a GPU.
"""

from __future__ import annotations

import ctypes
import shutil
from contextlib import AbstractContextManager, nullcontext
from functools import cache, lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from metabench import kernel as kernels

from ..features import SMALL_FC, VELO, FeatureSet
from ..models.mlp import MLP
from . import build, cpu, plan

AREA = 1 << 14  # elements of a tile, about: a GPU has hundreds of blocks to keep busy
WIDTHS = {SMALL_FC.name: (8, 16, 32), VELO.name: (4,)}  # hidden widths that the source is made for
TUNABLE = ("THREADS", "RESIDENT", "GRID", "PANEL", "MEASURE_PIECE", "ELEMENTS", "HIDDEN_TILE", "PRECISION",
           "WEIGHTS_IN_REGISTERS")  # fmt: skip
FLAGS = ("-std=c++17", "-O3", "-Xcompiler", "-fPIC")


class Step(ctypes.Structure):
    """What a launch reads and writes: struct Step in kernels/lopt_step/cuda/tensor.cuh."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("tensors", "tiles")),
        *((name, ctypes.c_int64) for name in ("tensor_count", "tile_count")),
        *((name, ctypes.c_void_p) for name in ("rates", "decays", "bias", "network")),
        ("network_stride", ctypes.c_int64),
        *((name, ctypes.c_void_p)
          for name in ("partials", "means_at", "means", "squares", "moments", "mean_square", "statistics")),
        ("bound", ctypes.c_double),
        *((name, ctypes.c_int64) for name in ("replace_nan", "processors")),
        ("stream", ctypes.c_void_p),
    ]  # fmt: skip


class Library(NamedTuple):
    """The compiled source for one feature set."""

    features: int
    velo: bool
    source: ctypes.CDLL


def serves(features: FeatureSet, mlp: MLP, dtype: torch.dtype) -> bool:
    """small_fc with two equal hidden layers of 8, 16 or 32 and VeLO's network of 4; float32 state."""
    widths = mlp.widths
    shape = len(widths) == 4 and widths[1] == widths[2] and widths[3] >= 2
    return shape and widths[1] in WIDTHS.get(features.name, ()) and dtype == torch.float32


@cache
def library(features: FeatureSet, hidden: int, config: tuple[tuple[str, Any], ...], arch: str) -> int:
    """Build or find the library for one feature set, width, configuration and architecture ("sm_90"); its handle.

    BuildError if nvcc is missing or refuses; ValueError for a parameter that the source does not have.
    """
    if shutil.which("nvcc") is None:
        raise build.BuildError("no nvcc found: install NVIDIA's CUDA toolkit and put its bin folder on the path")
    unknown = sorted({name for name, _ in config} - {*TUNABLE})
    if unknown:
        raise ValueError(f"the CUDA step has no parameter {', '.join(unknown)}; it has {', '.join(TUNABLE)}")
    macros = dict(config) if features is VELO else {"HIDDEN": hidden, **dict(config)}
    source = kernels.root() / "lopt_step" / "lopt_step.cu"
    return register(features, build.load(source, [*FLAGS, f"-arch={arch}"], macros, ["nvcc"]))


def register(features: FeatureSet, source: ctypes.CDLL) -> int:
    """A loaded library's handle for the operators."""
    cpu._libraries.append(Library(features.size, features is VELO, source))
    return len(cpu._libraries) - 1


def architecture(device: torch.device) -> str:
    """nvcc's name of a device: "sm_90"."""
    return "sm_{}{}".format(*torch.cuda.get_device_capability(device))


# ---- the operators -----------------------------------------------------------------------------------------------


class Resident:
    """A plan on a device, and its tensors' rows with the addresses of the last step."""

    def __init__(self, forms: tuple[plan.Form, ...], device: torch.device) -> None:
        self.plan, self.device = plan.plan(forms, AREA), device
        flags, outer, mid, z = (
            self.plan.tensors[:, plan.FIELDS.index(name)] for name in ("flags", "outer", "mid", "z")
        )
        means = torch.where(flags % 2 == plan.FACTORED, 3 * outer * mid * z, 0)
        self.means = int(means.sum())  # floats of scratch
        self.tiles, self.means_at = self.plan.tiles.to(device), (means.cumsum(0) - means).to(device)
        self.addresses: list[list[int]] = []
        self.host = self.rows = self.plan.tensors

    def at(self, addresses: list[list[int]]) -> Tensor:
        """The plan's rows with these addresses; copied only where they have changed, without waiting for the copy."""
        if addresses != self.addresses:
            self.addresses, self.host = addresses, self.plan.filled(addresses)
            if self.device.type == "cuda":
                self.host = self.host.pin_memory()  # kept: a captured step copies from it again
            self.rows = self.host.to(self.device, non_blocking=True)
        return self.rows


@lru_cache(maxsize=16)
def _resident(forms: tuple[plan.Form, ...], device: torch.device) -> Resident:
    return Resident(forms, device)


class Launch:
    """The arguments of one operator's launches. Holds the tensors that its Step points to until they are launched."""

    def __init__(
        self, lib: Library, p: list[Tensor], g: list[Tensor], m: list[Tensor], v: list[Tensor], factors: list[Tensor],
        axes: list[int], bound: float, replace_nan: bool, rates: Tensor,
    ) -> None:  # fmt: skip
        pairs = cpu.pairs_of(axes)
        self.lib, self.device = lib, p[0].device
        self.resident = _resident(tuple(map(plan.Form.of, p, g, p, pairs)), self.device)
        rows = self.resident.at(cpu.addresses(p, g, p, m, v, factors, pairs))
        self.step = Step(tensor_count=len(rows), tile_count=len(self.resident.tiles), bound=bound, replace_nan=replace_nan,
                         processors=_processors(self.device), stream=_stream(self.device))  # fmt: skip
        self.kept: list[Tensor] = []
        self.give(tensors=rows, tiles=self.resident.tiles, rates=rates, means_at=self.resident.means_at,
                  means=self.scratch(self.resident.means))  # fmt: skip

    def scratch(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=self.device)

    def give(self, **arrays: Tensor) -> None:
        """Put tensors into the Step."""
        for name, x in arrays.items():
            x = x.to(self.device).contiguous()
            setattr(self.step, name, x.data_ptr())
            self.kept.append(x)

    def run(self, name: str, *more: int) -> None:
        """Launch; RuntimeError with CUDA's number if it did not start."""
        error = getattr(self.lib.source, name)(ctypes.byref(self.step), *more)
        if error:
            raise RuntimeError(f"{name} did not start: CUDA error {error}")


def _measure(
    p: list[Tensor], g: list[Tensor], m: list[Tensor], v: list[Tensor], factors: list[Tensor], rates: Tensor,
    decays: Tensor, axes: list[int], bound: float, replace_nan: bool, handle: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Sums to fold; the operator `lopt::measure_`."""
    lib: Any = cpu._libraries[handle]
    with _on(p[0].device):
        launch = Launch(lib, p, g, m, v, factors, axes, bound, replace_nan, rates)
        tiles, made = len(launch.resident.tiles), launch.resident.plan
        mean_square, statistics = launch.scratch(len(p), lib.features), launch.scratch(len(p), cpu.MEANS)
        launch.give(decays=decays, partials=launch.scratch(made.partials), mean_square=mean_square, statistics=statistics,
                    squares=launch.scratch(tiles, lib.features, dtype=torch.float64),
                    moments=launch.scratch(tiles, cpu.MEANS, dtype=torch.float64))  # fmt: skip
        launch.run("lopt_sums")
        launch.run("lopt_means")
        launch.run("lopt_accumulate", int(lib.velo))
    torch.autograd.graph.increment_version([*m, *v, *factors])
    return mean_square, statistics


def _apply(
    p: list[Tensor], g: list[Tensor], m: list[Tensor], v: list[Tensor], factors: list[Tensor], rates: Tensor,
    mean_square: Tensor, bias: Tensor, network: Tensor, axes: list[int], bound: float, replace_nan: bool, handle: int,
) -> None:  # fmt: skip
    """The parameters; the operator `lopt::apply_`."""
    lib: Any = cpu._libraries[handle]
    with _on(p[0].device):
        launch = Launch(lib, p, g, m, v, factors, axes, bound, replace_nan, rates)
        launch.step.network_stride = network.shape[1] if network.ndim == 2 else 0
        launch.give(mean_square=mean_square, bias=bias, network=network)
        launch.run("lopt_means")
        launch.run("lopt_apply", int(lib.velo))
    torch.autograd.graph.increment_version(p)


@cache
def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


def _stream(device: torch.device) -> int:
    return torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0


def _on(device: torch.device) -> AbstractContextManager[Any]:
    """Launches go to the current device: make it the tensors'."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


cpu._operators.impl("measure_", _measure, "CUDA")
cpu._operators.impl("apply_", _apply, "CUDA")
