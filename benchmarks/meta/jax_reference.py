"""The JAX reference package's meta-training as a process that takes its turn: what `throughput.py --jax` measures beside ours.

    python jax_reference.py SOURCE     (SOURCE: a checkout of google/learned_optimization; run by throughput.py)

Reads lines "NAME SIZE", names as in WORK, and answers each with the CPU seconds of one call, all threads of the process together.
The package is used as it is: `AdafacMLPLOpt` with our two hidden layers of 32, `TruncatedPES` over `VectorizedLOptTruncatedStep`.
TensorFlow, which it imports to write summaries and to load data sets, and neither is done here, is stood in for where it is
missing.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from typing import Any
from unittest.mock import MagicMock

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
os.environ["JAX_PLATFORMS"] = "cpu"

TRUNCATION, STD, BATCH, INPUTS = 20, 0.03, 32, 16
WIDTHS = {500: (INPUTS, 18, 10), 2500: (INPUTS, 36, 36, 14)}  # as throughput.SIZES
PAIRS = 16
HORIZON = 10**6


def stand_in(name: str) -> None:
    """A module of which every attribute exists and does nothing, if there is no real one."""
    try:
        __import__(name)
    except ImportError:
        module: Any = MagicMock(name=name)
        module.__spec__, module.__path__ = ModuleSpec(name, None), []
        sys.modules[name] = module


def task_of(size: int) -> Any:
    """A fully connected network with ReLUs on random examples, cross-entropy; data and shapes as our `MLPTask` has them."""
    import jax
    import jax.numpy as jnp
    from learned_optimization.tasks import base
    from learned_optimization.tasks.datasets.base import Datasets

    widths, rng = WIDTHS[size], numpy.random.default_rng(0)

    def batches() -> Any:
        while True:
            x, y = rng.normal(size=(BATCH, INPUTS)), rng.integers(widths[-1], size=BATCH)
            yield {"x": x.astype(numpy.float32), "y": y.astype(numpy.int32)}

    class Network(base.Task):
        datasets = Datasets(*(batches() for _ in range(4)))

        def init(self, key: Any) -> Any:
            keys = jax.random.split(key, len(widths))
            layers = zip(widths, widths[1:], keys, strict=False)
            return [(jax.random.normal(k, (a, b)) * (2 / a) ** 0.5, jnp.zeros(b)) for a, b, k in layers]

        def loss(self, params: Any, key: Any, data: Any) -> Any:
            x = data["x"]
            for i, (w, b) in enumerate(params):
                x = x @ w + b
                x = jax.nn.relu(x) if i < len(params) - 1 else x
            hot = jax.nn.one_hot(data["y"], x.shape[-1])
            return jnp.mean(base.softmax_cross_entropy(logits=x, labels=hot))

    return Network()


def optimizer() -> Any:
    from learned_optimization.learned_optimizers.adafac_mlp_lopt import AdafacMLPLOpt

    return AdafacMLPLOpt(hidden_size=32, hidden_layers=2, step_mult=1e-2)


def update(size: int) -> Callable[[], Any]:
    """One compiled step of all particles, each with meta-weights of its own; the state is carried on."""
    import jax

    learned, task, n = optimizer(), task_of(size), 2 * PAIRS
    theta = jax.vmap(learned.init)(jax.random.split(jax.random.PRNGKey(0), n))
    params = jax.vmap(task.init)(jax.random.split(jax.random.PRNGKey(1), n))
    state = [jax.vmap(lambda t, p: learned.opt_fn(t).init(p, num_steps=HORIZON))(theta, params)]
    gradients = jax.tree_util.tree_map(lambda p: 0.01 * jax.random.normal(jax.random.PRNGKey(2), p.shape), params)
    one = jax.vmap(lambda t, s, g: learned.opt_fn(t).update(s, g, loss=0.0))
    step = jax.jit(one, donate_argnums=1)

    def call() -> None:
        state[0] = jax.block_until_ready(step(theta, state[0], gradients))

    return call


def truncation(size: int) -> Callable[[], Any]:
    """One PES estimate as the package's trainers call it, its data made beforehand; the unroll in it is compiled."""
    import jax
    from learned_optimization.outer_trainers import gradient_learner, truncation_schedule
    from learned_optimization.outer_trainers.lopt_truncated_step import VectorizedLOptTruncatedStep
    from learned_optimization.outer_trainers.truncated_pes import TruncatedPES
    from learned_optimization.tasks.base import single_task_to_family

    learned, family = optimizer(), single_task_to_family(task_of(size))
    schedule = truncation_schedule.ConstantTruncationSchedule(HORIZON)
    unroll = VectorizedLOptTruncatedStep(family, learned, schedule, num_tasks=PAIRS)
    pes = TruncatedPES(unroll, TRUNCATION, STD, TRUNCATION)
    weights = gradient_learner.WorkerWeights(learned.init(jax.random.PRNGKey(0)), None, None)
    state = [pes.init_worker_state(weights, jax.random.PRNGKey(1))]
    data = pes.get_datas()

    def call() -> None:
        estimate = pes.compute_gradient_estimate(weights, jax.random.PRNGKey(2), state[0], False, data)
        output, _ = jax.block_until_ready(estimate)
        state[0] = output.unroll_state

    return call


WORK: dict[str, Callable[[int], Callable[[], Any]]] = {"update": update, "truncation": truncation}


def main() -> None:
    made: dict[tuple[str, int], Callable[[], Any]] = {}
    for line in sys.stdin:
        name, size = line.split()
        key = (name, int(size))
        if key not in made:
            made[key] = WORK[name](int(size))
            for _ in range(2):  # compiles, and once more for the types of a state that has been through a step
                made[key]()
        begin = time.process_time()
        made[key]()
        sys.stdout.write(f"{time.process_time() - begin}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    import flax.training.checkpoints  # noqa: F401  before the stand-ins: it looks for TensorFlow too, and can do without

    for module in ("tensorflow", "tensorflow.compat", "tensorflow.compat.v2", "tensorflow_datasets"):
        stand_in(module)
    sys.path.insert(0, sys.argv[1])
    import numpy

    main()
