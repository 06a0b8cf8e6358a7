"""Other projects' names and orientations of the same tensors, mapped bit for bit to the ones written here.

What is written here has the names of PyLO's main branch. Read as well: the haiku trees of google/learned_optimization
(weights are (in, out), so they are transposed) and the key scheme of PyLO's branch `celo2`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

Tensors = dict[str, Tensor]
OFFSETS = {"momentum": "momentum_decays", "rms": "rms_decays", "adafactor": "adafactor_decays"}
JAX_LINEARS = {"linear": "mix_layer1", "linear_1": "mix_layer2", "linear_2": "final_mix_layer", "rnn/linear": "lstm.linear",
               "rnn_to_controls": "rnn_to_controls", "step_size": "step_size"}  # fmt: skip


def canonical(kind: str, tensors: Mapping[str, Tensor]) -> tuple[Tensors, dict[str, Any]]:
    """(tensors by our names, what else the file says: decay offsets). Unknown names pass through, to be refused by name."""
    t = {re.sub(r"^theta/|/~", "", key): x for key, x in tensors.items()}
    if kind == "small_fc" and any(re.search(r"(^|/)w0$", key) for key in t):
        return _small_fc_from_jax(t)
    if kind == "velo" and any(key.startswith("rnn_params/") for key in t):
        return _velo_from_jax(t), {}
    if kind == "celo2" and any(re.search(r"(^|/)w0__0$", key) for key in t):
        return _celo2_from_jax(t), {}
    if kind == "celo2" and "first_layer_weights.0" in t:
        return _celo2_from_pylo_branch(t), {}
    # PyLO's VeLO_MLP also holds scratch tensors, named like the banks without the trailing underscore
    scratch = (
        {re.sub(r"_(?=$|\.\d+$)", "", key) for key in t if re.search(r"_(\.\d+)?$", key)} if kind == "velo" else set()
    )
    return {key: x for key, x in t.items() if key not in scratch}, {}


def _last(t: Tensors) -> Tensors:
    """Keyed by the last part of each name."""
    return {key.rpartition("/")[2]: x for key, x in t.items()}


def _small_fc_from_jax(t: Tensors) -> tuple[Tensors, dict[str, Any]]:
    leaf = _last(t)
    n = sum(bool(re.fullmatch(r"w\d+", key)) for key in leaf)
    names = ["network.input", *(f"network.linear_{i}" for i in range(n - 2)), "network.output"]
    out: Tensors = {}
    for i, name in enumerate(names):
        out |= {f"{name}.weight": leaf[f"w{i}"].T.contiguous(), f"{name}.bias": leaf[f"b{i}"]}
    if not all(v in leaf for v in OFFSETS.values()):
        return out, {}
    return out, {"decay_offsets": {k: leaf[v].reshape(-1).tolist() for k, v in OFFSETS.items()}}


def _velo_from_jax(t: Tensors) -> Tensors:
    out: Tensors = {}
    for jax, name in JAX_LINEARS.items():
        out |= {f"{name}.weight": t[f"rnn_params/{jax}/w"].T.contiguous(), f"{name}.bias": t[f"rnn_params/{jax}/b"]}
    out |= {"lstm_init_state.0": t["lstm_init_state/hidden"], "lstm_init_state.1": t["lstm_init_state/cell"]}
    bank = {key.removeprefix("ff_mod_stack/"): x for key, x in t.items() if key.startswith("ff_mod_stack/")}
    first = torch.cat([bank[f"w0__{i}"] for i in range(sum(k.startswith("w0__") for k in bank))], 1)  # (B, 30, h)
    out |= {"input_weights_": first.mT.contiguous(), "input_bias_": bank["b0"]}
    last = sum(bool(re.fullmatch(r"b\d+", key)) for key in bank) - 1
    for i in range(1, last):
        out |= {f"hidden_weights_.{i - 1}": bank[f"w{i}"].mT.contiguous(), f"hidden_bias_.{i - 1}": bank[f"b{i}"]}
    return out | {"output_weights_": bank[f"w{last}"].mT.contiguous(), "output_bias_": bank[f"b{last}"]}


def _celo2_from_jax(t: Tensors) -> Tensors:
    leaf = _last(t)
    out = {f"w0.{i}": leaf[f"w0__{i}"] for i in range(sum(k.startswith("w0__") for k in leaf))} | {"b0": leaf["b0"]}
    for i in range(1, sum(bool(re.fullmatch(r"b\d+", key)) for key in leaf)):
        out |= {f"dense_w.{i - 1}": leaf[f"w{i}"], f"dense_b.{i - 1}": leaf[f"b{i}"]}
    return out


def _celo2_from_pylo_branch(t: Tensors) -> Tensors:
    """first_layer_weights.i (h, d), hidden[.i].weight (out, in), output.weight."""
    pieces = sum(k.startswith("first_layer_weights.") for k in t)
    out = {f"w0.{i}": t[f"first_layer_weights.{i}"].T.contiguous() for i in range(pieces)} | {
        "b0": t["first_layer_bias"]
    }
    dense = [*sorted(k.removesuffix(".weight") for k in t if re.fullmatch(r"hidden(\.\d+)?\.weight", k)), "output"]
    for i, name in enumerate(dense):
        out |= {f"dense_w.{i}": t[f"{name}.weight"].T.contiguous(), f"dense_b.{i}": t[f"{name}.bias"]}
    return out
