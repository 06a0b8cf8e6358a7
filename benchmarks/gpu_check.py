"""What needs a CUDA device: run `make gpu-check` there (a few minutes) and commit its result, under benchmarks/results/.

Needs torch and NumPy (no install of this project): the learned optimizers' step on the device against the same step on the CPU,
twice, and its time and memory beside torch.optim's AdamW, interleaved; in plain PyTorch and, where nvcc is on the path, by the
CUDA kernels, whose steps must be the same to the bit. Without a CUDA device it says so and exits 1.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "packages"))

import torch  # noqa: E402

import lopt  # noqa: E402

SHAPES = [(), (7,), (1, 1), (33, 65), (128, 128), (4, 3, 3, 3), (257, 1025), (2, 5, 8, 9, 3)]
BLOCK = [(2304, 768), (2304,), (768, 768), (768,), (3072, 768), (3072,), (768, 3072), (768,)]
MODELS = {
    "mlp, 1.0 M": [(768, 784), (768,), (512, 768), (512,), (10, 512), (10,)],
    "ViT-B/16-shaped, 86 M": [(768, 3, 16, 16), (768,), *12 * BLOCK],
}  # fmt: skip


BACKENDS = ("reference", "cuda") if shutil.which("nvcc") else ("reference",)


def agreement(backend: str, steps: int = 20) -> dict[str, float]:
    """Largest difference between device and CPU after some steps on the same gradients, relative to how far parameters moved.

    RuntimeError if the device takes other steps the second time.
    """
    worst: dict[str, float] = {}
    for shape in SHAPES:
        generator = torch.Generator().manual_seed(len(shape))
        start = torch.randn(shape, generator=generator)
        gradients = [torch.randn(shape, generator=generator) * 10 ** (i % 5 - 3) for i in range(steps)]
        ends = []
        for device in ("cpu", "cuda", "cuda"):
            p = start.clone().to(device).requires_grad_()
            own = "reference" if device == "cpu" else backend
            optimizer = lopt.SmallFCLOpt([p], weights="random:0", backend=own)
            for g in gradients:
                p.grad = g.to(device)
                optimizer.step()
            ends.append(p.detach().cpu())
        if backend == "cuda" and not torch.equal(ends[1], ends[2]):
            raise RuntimeError(f"backend {backend!r} is not the same to the bit from run to run on {shape}")
        moved = (ends[0] - start).abs().max().item()
        worst[str(shape)] = (ends[0] - ends[1]).abs().max().item() / max(moved, 1e-12)
    return worst


def step_times(shapes: list[tuple[int, ...]], rounds: int = 15) -> dict[str, dict[str, float]]:
    """Milliseconds of a step of each optimizer, run in turns, and peak memory above parameters and gradients."""
    makers = {
        "AdamW, foreach": lambda ps: torch.optim.AdamW(ps, foreach=True),
        "AdamW, fused": lambda ps: torch.optim.AdamW(ps, fused=True),
        **{f"small_fc, {b}": lambda ps, b=b: lopt.SmallFCLOpt(ps, weights="random:0", backend=b) for b in BACKENDS},
    }
    params = [torch.randn(s, device="cuda").requires_grad_() for s in shapes]
    for p in params:
        p.grad = torch.randn_like(p) * 1e-3
    optimizers = {name: make(params) for name, make in makers.items()}
    times: dict[str, list[float]] = {name: [] for name in makers}
    peaks: dict[str, float] = {}
    for turn in range(rounds + 3):
        for name, optimizer in optimizers.items():
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            before, started = torch.cuda.memory_allocated(), time.perf_counter()
            optimizer.step()
            torch.cuda.synchronize()
            if turn >= 3:
                times[name].append(1e3 * (time.perf_counter() - started))
            peaks[name] = (torch.cuda.max_memory_allocated() - before) / 2**20
    base = times["AdamW, foreach"]
    return {
        name: {
            "median_ms": statistics.median(ts),
            "ratio_to_adamw_foreach": statistics.median(t / b for t, b in zip(ts, base, strict=True)),
            "scratch_mb": peaks[name],
        }
        for name, ts in times.items()
    }


def main() -> int:
    """Run the checks, print and write the result; exit code 1 if the device disagrees with the CPU or there is none."""
    if not torch.cuda.is_available():
        print("no CUDA device here: nothing was checked")
        return 1
    device = torch.cuda.get_device_name()
    result = {
        "device": device,
        "torch": torch.__version__,
        "command": "make gpu-check",
        "relative_difference": {backend: agreement(backend) for backend in BACKENDS},
    }
    result["steps"] = {name: step_times(shapes) for name, shapes in MODELS.items()}
    folder = Path(os.environ.get("OUT", HERE / "results"))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"gpu_check_{device.lower().replace(' ', '_')}.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(path.read_text())
    worst = max(max(own.values()) for own in result["relative_difference"].values())
    print(f"{path}  largest relative difference {worst:.1e}")
    return 0 if worst < 1e-4 else 1


if __name__ == "__main__":
    sys.exit(main())
