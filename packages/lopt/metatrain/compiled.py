"""The step of many particles in C++: `batched.step_` as one call of kernels/lopt_step/particles.cpp.

It is built on first use, like the optimizers' kernels (`lopt.step.build`). A particle is stepped by one thread, with sums in an
order that depends on shapes alone, and no tuned configuration is looked up: a meta-training stays a function of its settings,
whatever the number of threads.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import math
import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from metabench import kernel as kernels

from ..features import SMALL_FC, signal, time_features
from ..step import build, cpu
from ..step.plan import POINTERS, Form, plan
from .layout import Layout, Piece

if TYPE_CHECKING:
    from .batched import MetaBatch, State

BACKENDS = ("auto", "reference", "cpu")
# Macros of network.h. On networks of 500 to 2,800 parameters the quickest of 15 choices, the defaults being 4 % slower.
CONFIG = {"HIDDEN_TILE": 8, "UNROLL": 1, "PANEL": 64}
WHOLE = 1 << 40  # elements of a tile: more than any tensor has
log = logging.getLogger("lopt")


def serves(hidden: tuple[int, ...]) -> bool:
    """Whether the kernel has networks of these hidden widths: two of one width, a multiple of 4 up to 128."""
    return len(hidden) == 2 and hidden[0] == hidden[1] and hidden[0] % 4 == 0 and 0 < hidden[0] <= 128


def kernel(layout: Layout, hidden: tuple[int, ...], backend: str = "auto") -> Compiled | None:
    """What steps the particles of a layout in C++; None for the reference.

    Raises:
        ValueError: an unknown backend, or "cpu" where the kernel does not serve the network or cannot be built.
    """
    if backend not in BACKENDS:
        raise ValueError(f"unknown backend {backend!r} of the batched step; allowed: {', '.join(BACKENDS)}")
    possible = serves(hidden) and all(math.prod(shape) for shape in layout.shapes)
    found = library(hidden[0]) if possible and backend != "reference" else None
    if backend == "cpu" and found is None:
        raise ValueError(
            f"backend='cpu' needs a C++ compiler, tensors that hold something, and two equal hidden layers, a multiple of 4 up "
            f"to 128 wide; hidden widths here: {hidden}; backend='auto' takes what there is"
        )
    return None if found is None else Compiled(layout, found)


@functools.cache
def library(hidden: int) -> Any | None:
    """`lopt_particles` for one width, or None after one warning. Cached: the question is settled once per process."""
    macros = {"EXTRA": 0, "RMS_EPS": f"{SMALL_FC.rms_eps}f", "DIAG_EPS": f"{SMALL_FC.diag_eps}f", **CONFIG,
              "HIDDEN": hidden, "HIDDEN_TILE": math.gcd(hidden, CONFIG["HIDDEN_TILE"])}  # fmt: skip
    source = kernels.root() / "lopt_step" / "particles.cpp"
    try:
        found = build.load(source, cpu.compiler_flags(), macros).lopt_particles
    except build.BuildError as e:
        message = f"lopt meta-trains in plain PyTorch, at about half the speed of its C++ kernel: {e}"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
        return None
    p, i = ctypes.c_void_p, ctypes.c_int64
    found.argtypes = [i, p, p, p, p, i, i, i, p, p, p, p, i, p, i, p, ctypes.c_int]
    found.restype = None
    log.info("meta-training steps in C++")
    return found


class Compiled:
    """The plan of one layout, and the kernel that steps along it."""

    def __init__(self, layout: Layout, kernel: Any) -> None:
        self.kernel, self.layout = kernel, layout
        self.plan = plan([_form(piece) for piece in layout.pieces], WHOLE)
        self.starts = torch.tensor([piece.start for piece in layout.pieces])
        # Of p, g, out, m, v and the diagonal: floats from their beginnings, and floats from one particle to the next.
        below = layout.size - layout.factored
        within, further = [], []
        for piece in layout.pieces:
            at, diagonal = piece.start, max(0, piece.start - layout.factored)
            slow, fast = _sides(piece) if piece.axes else (3 * below, 3 * below)
            within.append([at, at, at, at, at, diagonal, diagonal] if piece.axes is None else [at] * 5 + [0, 0])
            further.append([layout.size] * 3 + [3 * layout.size, layout.size, slow, fast])
        self.within, self.next = 4 * torch.tensor(within), 4 * torch.tensor(further)

    def takes(self, p: Tensor, g: Tensor, state: State, meta: MetaBatch, layout: Layout) -> bool:
        """Whether all lies as the kernel reads it; what does not is the reference's, with its words where it is wrong."""
        shape = (len(meta.decays), self.layout.size)
        return (layout == self.layout and meta.packed is not None and p.shape == g.shape == state.v.shape == shape
                and all(x.is_contiguous() and x.dtype == torch.float32 for x in (p, *state.tensors())))  # fmt: skip

    def step_(
        self, p: Tensor, g: Tensor, state: State, meta: MetaBatch, scale: Tensor | float, exp_mult: float,
        by_signal: bool = False,
    ) -> None:  # fmt: skip
        """p <- p - scale o_0 exp(exp_mult o_1), and the state, of what `takes` accepts; scale: as `batched.step_` has lr."""
        assert meta.packed is not None
        unbiased = corrections(meta, state.t) if by_signal else None
        scale = torch.as_tensor(scale) if by_signal else scale  # the signal multiplies rates per element
        each = _per_element(scale, p) if isinstance(scale, Tensor) else None
        # In the order of `cpu.RATES`. Rates per element multiply the bare step, which is what a parameter shrunk to 0 leaves.
        own = (1.0, scale, exp_mult, 1.0, 0.0, 1.0) if each is None else (1.0, 1.0, exp_mult, 0.0, 0.0, 1.0)
        rates = torch.tensor(own, dtype=torch.float32).repeat(len(self.plan.tensors), 1)
        bias = torch.baddbmm(meta.biases[0], meta.time, time_features(state.t)[..., None])  # (n, h, 1)
        g = g.to(torch.float32).contiguous()
        tensors = self.plan.tensors.clone()
        tensors[:, : len(POINTERS)] = self.within + self._addresses(p, g, state)
        made, layout = self.plan, self.layout
        self.kernel(len(p), tensors.data_ptr(), made.tiles.data_ptr(), self.next.data_ptr(), self.starts.data_ptr(),
                    len(tensors), layout.size, layout.size - layout.factored, rates.data_ptr(), meta.decays.data_ptr(),
                    bias.data_ptr(), meta.packed.data_ptr(), meta.packed.shape[1], _address(each),
                    0 if each is None else each.stride(0), _address(unbiased), cpu.threads())  # fmt: skip
        torch.autograd.graph.increment_version([p, *state.tensors()])
        state.t += 1

    def _addresses(self, p: Tensor, g: Tensor, state: State) -> Tensor:
        """(T, 7), where what belongs to the first particle begins, in the order of `POINTERS`."""
        common = [x.data_ptr() for x in (p, g, p, state.m, state.v)]
        rows = []
        for piece, row, col in zip(self.layout.matrices, state.row, state.col, strict=True):
            sides = [row.data_ptr(), col.data_ptr()]
            rows.append([*common, *(sides if _row_is_slow(piece) else sides[::-1])])
        rows += [[*common, state.diag.data_ptr(), state.diag.data_ptr()]] * len(self.layout.vectors)
        return torch.tensor(rows, dtype=torch.int64)


def _form(piece: Piece) -> Form:
    """Of a contiguous tensor."""
    strides = torch.empty(piece.shape, device="meta").stride()
    return Form(piece.shape, piece.axes, (strides,) * 3, (torch.float32,) * 3)


def _row_is_slow(piece: Piece) -> bool:
    assert piece.axes is not None
    return piece.axes.r > piece.axes.c


def _sides(piece: Piece) -> tuple[int, int]:
    """Floats of the slow and of the fast moment of a matrix, three decays of each."""
    assert piece.axes is not None
    row, col = (3 * math.prod(piece.shape) // piece.shape[axis] for axis in (piece.axes.r, piece.axes.c))
    return (row, col) if _row_is_slow(piece) else (col, row)


def corrections(meta: MetaBatch, t: Tensor) -> Tensor:
    """(n,) what makes sqrt(mean m_0^2 / sqrt(mean v^2)) a particle's `lopt.features.signal`."""
    one = torch.ones_like(t)
    return signal(one, one, meta.momentum[:, 0], meta.rms[:, 0], t).contiguous()


def _address(x: Tensor | None) -> int | None:
    return None if x is None else x.data_ptr()


def _per_element(lr: Tensor, p: Tensor) -> Tensor:
    """Rates as the kernel reads them: (n, size), rows contiguous; one row for all particles has stride 0."""
    wide = lr.to(torch.float32).broadcast_to(p.shape)
    return wide if wide.stride(1) == 1 or p.shape[1] == 1 else wide.contiguous()
