"""Step time and memory of the learned optimizers beside torch.optim, measured in one interleaved run.

Every round takes one step of every contender in turn, so a machine that slows down slows all of them; what is reported is
the median over rounds of the process's CPU time, and its ratio to the first contender. Memory is measured in a process of
its own per contender: how far the resident set grows above model, gradients and imports, at its peak.
"""

from __future__ import annotations

import ctypes
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from metabench import kernel as kernels

from .features import SMALL_FC
from .registry import OPTIMIZERS, create
from .step import build, cpu

Shapes = list[tuple[int, ...]]


def gpt(layers: int = 6, d: int = 320, vocab: int = 8192, context: int = 256) -> Shapes:
    """Parameter shapes of a GPT: 10.1 M numbers in 76 tensors by default."""
    block: Shapes = [(d,), (d,), (3 * d, d), (3 * d,), (d, d), (d,), (d,), (d,), (4 * d, d), (4 * d,), (d, 4 * d), (d,)]
    return [(vocab, d), (context, d), *(block * layers), (d,), (d,)]


MODELS: dict[str, Callable[[], Shapes]] = {
    "gpt10m": gpt,
    "mlp1m": lambda: [(768, 784), (768,), (512, 768), (512,), (10, 512), (10,)],
}


def newton_schulz_alone(params: Sequence[Tensor]) -> Any:
    """Only CELO2's matrix products, as a contender: what orthogonalisation costs at least."""

    class Products:
        def step(self) -> None:
            for p in params:
                if p.ndim == 2:
                    x = p.detach()
                    x = x.T if x.shape[0] > x.shape[1] else x
                    for _ in range(5):
                        a = x @ x.T
                        x = a @ a @ x
                        x = x / x.norm()

    return Products()


def contenders() -> dict[str, Callable[[list[nn.Parameter]], Any]]:
    """Name -> optimizer over a list of parameters; random meta-weights, which cost what trained ones cost."""
    torch_optim: dict[str, Callable[[list[nn.Parameter]], Any]] = {
        "adamw": lambda p: torch.optim.AdamW(p, lr=1e-4, foreach=True),
        "adamw_fused": lambda p: torch.optim.AdamW(p, lr=1e-4, fused=True),
        "adafactor": lambda p: torch.optim.Adafactor(p, lr=1e-4),
        "newton_schulz_alone": newton_schulz_alone,
    }
    special: dict[str, dict[str, Any]] = {"velo": {"num_steps": 150_000}}

    def ours(name: str, **options: Any) -> Callable[[list[nn.Parameter]], Any]:
        return lambda p: create(name, p, **{"weights": "random:0", "lr": 1e-4, **special.get(name, {}), **options})

    learned = {name: ours(name) for name in OPTIMIZERS}
    variants = {"celo2_base": ours("celo2", orthogonalize=False)}
    plain = {f"{name}_reference": ours(name, backend="reference") for name in ("small_fc", "velo", "celo2")}
    return {**torch_optim, **learned, **variants, **plain}


def make(name: str, shapes: Shapes) -> tuple[list[nn.Parameter], Callable[[], Any]]:
    """Seeded parameters with gradients, and a function that takes one step of one contender."""
    there = contenders()
    if name not in there:
        raise ValueError(f"unknown contender {name!r}; allowed: {', '.join(there)}")
    g = torch.Generator().manual_seed(0)
    params = [nn.Parameter(0.02 * torch.randn(s, generator=g)) for s in shapes]
    for p in params:
        p.grad = 1e-3 * torch.randn(p.shape, generator=g)
    optimizer = there[name](params)
    return params, (lambda: optimizer.step(loss=1.0)) if name.startswith("velo") else optimizer.step


def step_times(names: Sequence[str], model: str = "gpt10m", threads: int = 1, rounds: int = 7) -> list[dict[str, Any]]:
    """One row per contender: median and least CPU milliseconds of a step, wall milliseconds, ratio to the first named."""
    shapes = _shapes(model)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        steps = {name: make(name, shapes)[1] for name in names}
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
        for round_ in range(rounds + 1):
            for name, step in steps.items():
                cpu, wall = time.process_time(), time.perf_counter()
                step()
                if round_:  # the first makes state, builds kernels, fills caches
                    times[name].append((1e3 * (time.process_time() - cpu), 1e3 * (time.perf_counter() - wall)))
    finally:
        torch.set_num_threads(before)
    return [_row(name, times[name], times[names[0]], model, threads) for name in names]


def _row(
    name: str, times: list[tuple[float, float]], base: list[tuple[float, float]], model: str, threads: int
) -> dict[str, Any]:
    cpu, wall = zip(*times, strict=True)
    # Round by round, so that a slow moment of the machine is in both numbers or in neither.
    ratios = [c / b for (c, _), (b, _) in zip(times, base, strict=True)]
    return {"optimizer": name, "model": model, "threads": threads, "rounds": len(times),
            "cpu_ms": round(statistics.median(cpu), 2), "cpu_ms_min": round(min(cpu), 2),
            "wall_ms": round(statistics.median(wall), 2), "ratio": round(statistics.median(ratios), 2)}  # fmt: skip


def fma_share(rounds: int = 7) -> dict[str, float]:
    """What share of one core's multiply-add peak small_fc's apply pass reaches, features and memory included.

    Both on one thread by its CPU time, in turns; the peak by kernels/lopt_step/fma_peak.cpp, the pass on the inputs that
    tuning uses. Operations are the network's, two per multiply-add.
    """
    name = cpu.KERNELS[SMALL_FC.name]
    module = kernels.find(name).reference()
    arguments = module.inputs()
    values = [x.ctypes.data if getattr(x, "shape", ()) else x.item() for x in arguments.values()]
    apply = cpu._libraries[cpu.library(SMALL_FC, module.NETWORK.hidden, cpu.configuration(name, None))].apply
    peak = build.load(kernels.root() / "lopt_step" / "fma_peak.cpp", cpu.compiler_flags(), {}).lopt_fma_peak
    peak.restype, peak.argtypes = ctypes.c_double, [ctypes.c_long]
    shares, reached, peaks = [], [], []
    apply(*values)
    for _ in range(rounds):
        peaks.append(peak(3_000_000) / 1e9)
        start = time.thread_time()
        apply(*values)
        reached.append(module.work(arguments) / (time.thread_time() - start) / 1e9)
        shares.append(reached[-1] / peaks[-1])
    middle = {"peak_gflops": peaks, "apply_gflops": reached, "share": shares}
    return {key: round(statistics.median(x), 3) for key, x in middle.items()}


def threads_speedup(name: str, model: str = "gpt10m", threads: int = 2, rounds: int = 9) -> dict[str, Any]:
    """Wall time of a step on one thread and on several, in turns; the least of each, since neighbours only add."""
    step, before = make(name, _shapes(model))[1], torch.get_num_threads()
    least = dict.fromkeys((1, threads), float("inf"))
    try:
        for _ in range(rounds):
            for n in least:
                torch.set_num_threads(n)
                start = time.perf_counter()
                step()
                least[n] = min(least[n], time.perf_counter() - start)
    finally:
        torch.set_num_threads(before)
    one, several = (1e3 * x for x in least.values())
    return {"optimizer": name, "threads": threads, "wall_ms_1": round(one, 1), "wall_ms": round(several, 1),
            "speedup": round(one / several, 2)}  # fmt: skip


def memory(name: str, model: str = "gpt10m", steps: int = 3) -> dict[str, float]:
    """Megabytes, in a fresh process (Linux): optimizer state; peak growth of the resident set; that beside the state, where
    the optimizer makes its state before the first step."""
    code = f"from lopt.bench import _memory_here; _memory_here({name!r}, {model!r}, {steps})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"measuring {name} failed: {done.stderr.strip().splitlines()[-1:]}")
    return json.loads(done.stdout)


def _memory_here(name: str, model: str, steps: int) -> None:
    """Runs in the fresh process: everything but the optimizer exists before the mark is set."""
    torch.set_num_threads(1)
    shapes = _shapes(model)
    make("adamw", [(2, 2)])[1]()  # what torch loads on first use is not the contender's
    make(name, [(64, 64)])[1]()
    g = torch.Generator().manual_seed(0)
    params = [nn.Parameter(0.02 * torch.randn(s, generator=g)) for s in shapes]
    for p in params:
        p.grad = 1e-3 * torch.randn(p.shape, generator=g)
    start = _mark()
    optimizer = contenders()[name](params)

    made = [x for s in getattr(optimizer, "state", {}).values() for x in s.values() if isinstance(x, Tensor)]
    for x in made:
        x.add_(0)  # zeros are not resident until they are written
    begin = _resident("VmRSS")
    for _ in range(steps):
        optimizer.step(loss=1.0) if name.startswith("velo") else optimizer.step()
    state = [x for s in getattr(optimizer, "state", {}).values() for x in s.values() if isinstance(x, Tensor)]
    held, peak = sum(x.numel() * x.element_size() for x in state) / 1e6, _resident("VmHWM")
    found = {"state_mb": held, "peak_growth_mb": peak - start, **({"scratch_mb": peak - begin} if made else {})}
    sys.stdout.write(json.dumps({key: round(x, 1) for key, x in found.items()}))


def _mark() -> float:
    """Megabytes resident now; the peak begins anew here."""
    Path("/proc/self/clear_refs").write_text("5")
    return _resident("VmRSS")


def _resident(field: str) -> float:
    """Megabytes, from /proc/self/status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) / 1e3


def _shapes(model: str) -> Shapes:
    if model not in MODELS:
        raise ValueError(f"unknown model {model!r}; allowed: {', '.join(MODELS)}")
    return MODELS[model]()


def bench(
    names: Sequence[str], model: str = "gpt10m", threads: int = 1, rounds: int = 7, with_memory: bool = True
) -> list[dict[str, Any]]:
    """`step_times` against AdamW (foreach), and `memory` of each contender."""
    every = ["adamw", *(n for n in names if n != "adamw")]
    rows = step_times(every, model, threads, rounds)
    return [{**row, **(memory(row["optimizer"], model) if with_memory else {})} for row in rows]
