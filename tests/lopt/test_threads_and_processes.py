"""The compiled step among threads and processes: the same bits whatever their number, no thread that nobody asked for,
nothing printed, nothing left behind, one line that says what took the step.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch._dynamo

import lopt
from lopt.step import dispatch
from lopt.testing.subject import give_gradients

SHAPES = [(300, 700), (70_001,), (64, 48, 3, 3), (7,), ()]
OPTIONS = {"velo": {"num_steps": 50}, "celo2": {"orthogonalize": False, "adamw_for_vectors": False}}


def run(name, threads, steps=3):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        g = torch.Generator().manual_seed(0)
        params = [torch.nn.Parameter(torch.randn(s, generator=g)) for s in SHAPES]
        optimizer = lopt.create(name, params, weights="random:0", backend="cpu", **OPTIONS.get(name, {}))
        for t in range(steps):
            give_gradients(params, t)
            optimizer.step(**({"loss": 1.0} if name == "velo" else {}))
    finally:
        torch.set_num_threads(before)
    return [p.detach() for p in params] + [x for p in params for x in optimizer.state[p].values()]


@pytest.mark.parametrize("name", ["small_fc", "mulo", "elo", "velo", "celo2"])
def test_any_number_of_threads_gives_the_same_bits(name):
    """The compiled passes add in the plan's order; VeLO's matrix products are PyTorch's, on one thread."""
    one, again, two = run(name, 1), run(name, 1), run(name, 2)
    assert all(torch.equal(x, y) for x, y in zip(one, again, strict=True)), "the same run twice"
    assert all(torch.equal(x, y) for x, y in zip(one, two, strict=True)), "two threads"


def python(code, timeout=600, **environment):
    """A fresh process, killed with its children after a time; (return code, stdout, stderr)."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OMP", "MKL"))}
    command = [sys.executable, "-W", "error", "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**kept, **environment},
                          start_new_session=True) as process:  # fmt: skip
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode, out, err


STEP = """
import os, torch
from lopt import SmallFCLOpt
p = torch.nn.Parameter(torch.ones(600, 700))
p.grad = torch.arange(420000.0).reshape(600, 700) / 4e5
o = SmallFCLOpt([p], weights="random:0", backend="cpu")
o.step()
"""


@pytest.mark.parametrize(
    ("size", "in_child"),
    [("100, 70", ""), ("600, 700", "torch.set_num_threads(1)")],
    ids=["small", "as a data loader's worker"],
)
def test_a_forked_child_steps_too(size, in_child):
    """GNU's OpenMP loses its threads in a fork and waits for them: with two threads in the parent, the child takes the same step.

    PyTorch's own operators wait there too where they are large enough for threads, unless the child asks for one, as a data
    loader's worker does.
    """
    code = (
        "import torch; torch.set_num_threads(2)"
        + STEP.replace("600, 700", size).replace("420000.0", "1.0 * p.numel()")
        + (
            "read, write = os.pipe(); pid = os.fork()\n"
            "if pid == 0:\n"
            f"    {in_child or 'pass'}; o.step(); os.write(write, p.detach().numpy().tobytes()[:400]); os._exit(0)\n"
            "o.step()\n"
            "assert os.waitpid(pid, 0)[1] == 0 and os.read(read, 400) == p.detach().numpy().tobytes()[:400]\n"
        )
    )
    assert python(code, timeout=60) == (0, "", "")


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="counts threads in /proc")
@pytest.mark.parametrize("asked", ["1", "2"])
def test_omp_num_threads_is_honoured(asked):
    """One thread: no other is started. Two: one more, or one for PyTorch's OpenMP and one for the kernels' where they differ."""
    count = "len(os.listdir('/proc/self/task'))"
    code = STEP.replace("\np =", f"\nn = {count}\np =", 1) + f"print({count} - n)"
    status, out, err = python(code, OMP_NUM_THREADS=asked)
    assert (status, err) == (0, "") and int(out) in {"1": [0], "2": [1, 2]}[asked]


def test_nothing_is_printed_and_nothing_is_left(tmp_path):
    """Not even by the compiler, on first use: in the cache are the libraries, in the temporary folder is nothing."""
    cache, temporary, here = (tmp_path / name for name in ("cache", "tmp", "here"))
    for folder in (temporary, here):
        folder.mkdir()
    code = f"import os; os.chdir({str(here)!r}){STEP}"
    assert python(code, XDG_CACHE_HOME=str(cache), TMPDIR=str(temporary)) == (0, "", "")
    left = [p for p in cache.rglob("*") if p.is_file() and "kernels" in p.parts]
    assert len(left) == 2 and all(p.suffix == ".so" for p in left)
    assert not list(here.iterdir()) and not [p for p in temporary.rglob("*") if p.is_file()]


def test_a_full_disk_is_done_without(tmp_path):
    """The cache's file cannot be written to its end: the library comes from a temporary folder, and the step is taken."""
    device = Path("/dev/full")
    if not device.exists():
        pytest.skip("needs /dev/full")
    folder = tmp_path / "metaopt-toolkit" / "kernels"
    folder.mkdir(parents=True)
    code = "import lopt.step.build as b; real = b._workplace\n" + (
        "def full(cache): raise OSError(28, 'No space left on device')\n"
        "import tempfile; b._workplace = lambda cache: tempfile.TemporaryDirectory(prefix='elsewhere-')\n"
        "b.Path.replace = lambda self, target: full(target)\n"
    )
    assert python(code + STEP, XDG_CACHE_HOME=str(tmp_path)) == (0, "", "")
    assert not list(folder.iterdir())


def test_auto_says_once_what_it_took(caplog):
    dispatch._find_library.cache_clear()
    with caplog.at_level(logging.INFO, "lopt"):
        for _ in range(2):
            p = torch.nn.Parameter(torch.ones(4, 4))
            p.grad = torch.eye(4)
            lopt.SmallFCLOpt([p], weights="random:0").step()
    assert [r.getMessage() for r in caplog.records] == ["small_fc steps in C++ (default configuration)"]


@pytest.mark.parametrize("name", ["small_fc", "velo"])
def test_state_after_a_compiled_step_is_the_parameters_own(name):
    """Not that of temporaries which a compiled graph made: the keys are those of before, and a fresh optimizer loads it."""
    torch._dynamo.reset()
    params = [torch.nn.Parameter(torch.ones(8, 6)), torch.nn.Parameter(torch.ones(6))]
    options = {**OPTIONS.get(name, {}), "weights": "random:0", "lr": torch.tensor(0.1)}
    optimizer = lopt.create(name, params, **options)
    keys = {i: sorted(s) for i, s in optimizer.state_dict()["state"].items()}
    give_gradients(params, 0)
    loss = {"loss": torch.tensor(1.0)} if name == "velo" else {}
    torch.compile(lambda: optimizer.step(**loss), backend="aot_eager")()
    saved = optimizer.state_dict()
    assert {i: sorted(s) for i, s in saved["state"].items()} == keys
    assert set(optimizer.state) == set(params)
    assert all(saved["state"][i]["m"].abs().max() > 0 for i in (0, 1)), "the state in the dict is the one that moved"
    lopt.create(name, params, **options).load_state_dict(saved)


def test_versions_tell_autograd_that_a_step_was_taken():
    """A backward pass through a parameter that has been stepped since must raise, as after any in-place change."""
    p = torch.nn.Parameter(torch.ones(4, 4))
    y = (p * p).sum()
    p.grad = torch.eye(4)
    lopt.SmallFCLOpt([p], weights="random:0", backend="cpu").step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()
