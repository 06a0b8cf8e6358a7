"""Meta-weights arrive bit for bit from every layout they were published in; what is broken or foreign is refused by name."""

from __future__ import annotations

import json
import pickle
import socket
import struct

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from lopt import CELO2, VeLO
from lopt.models import CELO2Weights, SmallFCWeights, VeLOWeights, pretrained
from lopt.models.msgpack import unpack

FAMILIES = {
    "small_fc": lambda: SmallFCWeights.random(1, (24, 24)),
    "velo": lambda: VeLOWeights.random(1, width=8, bank=5),
    "celo2": lambda: CELO2Weights.random(1),
}


def same(a, b):
    (x, c), (y, d) = a.to_state(), b.to_state()
    return c == d and list(x) == list(y) and all(torch.equal(x[k], y[k]) for k in x)


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_round_trip_keeps_every_bit(tmp_path, kind):
    weights = FAMILIES[kind]()
    weights.save_pretrained(tmp_path / "w")
    assert same(weights, type(weights).from_pretrained(tmp_path / "w"))
    assert same(weights, type(weights).from_pretrained(str(tmp_path / "w")))
    assert sorted(p.name for p in (tmp_path / "w").iterdir()) == ["README.md", "config.json", "model.safetensors"]


def test_decay_offsets_travel_with_the_weights(tmp_path):
    w = SmallFCWeights(
        FAMILIES["small_fc"]().mlp, torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.01]), torch.tensor([0.4, -0.1, 0.0])
    )
    w.save_pretrained(tmp_path)
    again = SmallFCWeights.from_pretrained(tmp_path, decay_offsets="mulo")
    assert torch.equal(again.momentum_offsets, w.momentum_offsets), "what is stored wins over what is assumed"
    assert torch.equal(again.decays().adafactor, w.decays().adafactor)


def test_a_seed_is_a_checkpoint():
    for cls in (SmallFCWeights, CELO2Weights):
        assert same(cls.from_pretrained("random:3"), cls.from_pretrained("random:3"))
        assert not same(cls.from_pretrained("random:3"), cls.from_pretrained("random:4"))


# ---- other projects' layouts ---------------------------------------------------------------------------------------


def test_pylo_without_offsets_asks_which(tmp_path):
    tensors, _ = FAMILIES["small_fc"]().to_state()
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"input_size": 39, "hidden_size": 24, "hidden_layers": 1}))
    with pytest.raises(ValueError, match="decay_offsets='mulo'"):
        SmallFCWeights.from_pretrained(tmp_path)
    assert SmallFCWeights.from_pretrained(tmp_path, decay_offsets="mulo").momentum_offsets[0] == pytest.approx(
        0.15216392
    )


def test_pylo_pt_with_offsets(tmp_path):
    weights = FAMILIES["small_fc"]()
    offsets = {
        "momentum_decays": torch.tensor([0.1, 0, 0]),
        "rms_decays": torch.tensor([0.2]),
        "adafactor_decays": torch.zeros(3),
    }
    torch.save({"decays": offsets, "state_dict": weights.to_state()[0]}, tmp_path / "w.pt")
    again = SmallFCWeights.from_pretrained(tmp_path / "w.pt")
    assert torch.equal(again.mlp.weights[0], weights.mlp.weights[0]) and again.rms_offsets.tolist() == pytest.approx(
        [0.2]
    )


def test_pylo_velo_is_two_folders_with_scratch(tmp_path):
    weights = FAMILIES["velo"]()
    tensors, _ = weights.to_state()
    rnn = {k: x for k, x in tensors.items() if k.startswith(("mix", "final", "lstm", "rnn", "step"))}
    mlp = {k: x for k, x in tensors.items() if k not in rnn}
    mlp |= {"input_weights": torch.zeros(2, 3), "input_bias": torch.zeros(1), "hidden_weights.0": torch.zeros(4, 4)}
    for name, content in (("rnn", rnn), ("mlp", mlp)):
        (tmp_path / name).mkdir()
        save_file(content, tmp_path / name / "model.safetensors")
    assert same(weights, VeLOWeights.from_pretrained(f"{tmp_path}/rnn+{tmp_path}/mlp"))
    with pytest.raises(ValueError, match="two checkpoints"):
        VeLOWeights.from_pretrained(f"{tmp_path}/rnn")


def test_jax_trees_are_transposed_bit_for_bit(tmp_path, golden):
    g = golden("velo_jax_small")
    tree = {k.removeprefix("theta/"): x.numpy() for k, x in g.items() if k.startswith("theta/")}
    np.savez(tmp_path / "theta.npz", **tree)
    w = VeLOWeights.from_pretrained(tmp_path / "theta.npz")
    assert torch.equal(w.lstm.weight, g["theta/rnn_params/rnn/linear/w"].T)
    assert torch.equal(w.bank_weights[0][:, :, 3:6], g["theta/ff_mod_stack/~/w0__3"].mT)
    assert torch.equal(w.bank_biases[2], g["theta/ff_mod_stack/~/b2"])
    small = golden("adafac_jax_mulo_decays")
    np.savez(tmp_path / "small.npz", **{k: x.numpy() for k, x in small.items() if k.startswith("theta/")})
    w = SmallFCWeights.from_pretrained(tmp_path / "small.npz")
    assert torch.equal(w.mlp.weights[1], small["theta/nn/w1"].T) and torch.equal(
        w.momentum_offsets, small["theta/momentum_decays"]
    )


def test_three_layouts_of_the_published_celo2_are_one(tmp_path, golden, shared_dir):
    """PyLO's main branch (in the golden file), its branch celo2 (.pt), and the original flax msgpack."""
    g = golden("celo2_pylonaive_published_ortho")
    main = CELO2Weights.from_state({k.removeprefix("theta/"): x for k, x in g.items() if k.startswith("theta/")}, {})
    branch = CELO2Weights.from_pretrained(shared_dir / "weights" / "celo2_weights.pt")
    tensors, _ = main.to_state()
    tree = {f"w0__{i}": tensors[f"w0.{i}"] for i in range(14)} | {"b0": tensors["b0"]}
    tree |= {f"{x}{i + 1}": tensors[f"dense_{x}.{i}"] for i in range(2) for x in "wb"}
    (tmp_path / "theta.state").write_bytes(
        packed({"ff_mod_stack": {"~": {k: x.numpy() for k, x in tree.items()}}, "n": 3})
    )
    (tmp_path / "config.json").write_text("{}")
    original = CELO2Weights.from_pretrained(tmp_path)
    assert same(main, branch) and same(main, original)


def packed(x):
    """What flax.serialization.msgpack_serialize writes, for the few types here."""
    if isinstance(x, dict):
        return bytes([0xDE]) + struct.pack(">H", len(x)) + b"".join(packed(k) + packed(v) for k, v in x.items())
    if isinstance(x, str):
        return bytes([0xD9, len(x)]) + x.encode()
    if isinstance(x, int):
        return bytes([0xCD]) + struct.pack(">H", x)
    if isinstance(x, (list, tuple)):
        return bytes([0x90 + len(x)]) + b"".join(map(packed, x))
    if isinstance(x, bytes):
        return bytes([0xC6]) + struct.pack(">I", len(x)) + x
    payload = packed([list(x.shape), x.dtype.name, np.ascontiguousarray(x).tobytes()])
    return bytes([0xC9]) + struct.pack(">Ib", len(payload), 1) + payload


@pytest.mark.parametrize(
    "data", [b"", b"\xde\x00\x01", b"\xc1", b"\x01\x02", packed(np.zeros(3, "f4"))[:-2], b"\xd4\x07\x00"]
)
def test_a_damaged_msgpack_is_refused(data):
    with pytest.raises(ValueError):
        unpack(data)


# ---- what is refused -----------------------------------------------------------------------------------------------


def test_nothing_given_names_the_choices():
    for make in (
        lambda: CELO2([torch.nn.Parameter(torch.ones(2))]),
        lambda: VeLO([torch.nn.Parameter(torch.ones(2))], 10),
    ):
        with pytest.raises(ValueError, match=r"hub:user/name.*random:SEED"):
            make()


@pytest.mark.parametrize(
    ("spec", "said"), [("random:x", "has no seed"), ("no/such/folder", "no meta-weights at"), (3, "int is no")]
)
def test_a_spec_that_means_nothing(spec, said):
    with pytest.raises(ValueError, match=said):
        CELO2Weights.from_pretrained(spec)


def test_another_kind_is_refused_by_name(tmp_path):
    FAMILIES["celo2"]().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="holds celo2 meta-weights, not small_fc"):
        SmallFCWeights.from_pretrained(tmp_path)


def test_a_wrong_shape_or_nan_is_refused_by_name(tmp_path):
    tensors, config = FAMILIES["small_fc"]().to_state()
    (tmp_path / "config.json").write_text(json.dumps(config))
    save_file(tensors | {"network.linear_0.weight": torch.full((24, 24), torch.nan)}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"'network.linear_0.weight' has NaN"):
        SmallFCWeights.from_pretrained(tmp_path)
    save_file(tensors | {"network.linear_0.weight": torch.zeros(24, 23)}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="layer 1 takes 23 inputs"):
        SmallFCWeights.from_pretrained(tmp_path)
    save_file({"some.other": torch.zeros(2)}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"some.other"):
        SmallFCWeights.from_pretrained(tmp_path)


def test_a_truncated_file_is_named(tmp_path):
    FAMILIES["celo2"]().save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(ValueError, match=r"model.safetensors is no readable"):
        CELO2Weights.from_pretrained(tmp_path)


class Exploit:
    def __reduce__(self):
        return (open, ("exploited", "w"))


def test_a_pickle_is_not_executed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "w.pt").write_bytes(pickle.dumps({"w": Exploit()}))
    torch.save({"w": Exploit()}, tmp_path / "v.pt")
    for name in ("w.pt", "v.pt"):
        with pytest.raises(ValueError, match="is no readable"):
            CELO2Weights.from_pretrained(tmp_path / name)
    assert not (tmp_path / "exploited").exists()


def test_packaged_names_are_found_and_listed(tmp_path, monkeypatch):
    monkeypatch.setattr(pretrained, "PACKAGED", tmp_path)
    weights = FAMILIES["celo2"]()
    weights.save_pretrained(tmp_path / "celo2-tiny")
    assert same(weights, CELO2Weights.from_pretrained("celo2-tiny"))
    with pytest.raises(ValueError, match="celo2-tiny"):
        CELO2([torch.nn.Parameter(torch.ones(2))])
    assert pretrained.packaged("velo") == []


def test_no_network_unless_the_hub_was_asked_for(tmp_path, monkeypatch):
    FAMILIES["celo2"]().save_pretrained(tmp_path)
    monkeypatch.setattr(socket, "socket", lambda *_, **__: pytest.fail("opened a socket"))
    CELO2([torch.nn.Parameter(torch.ones(2))], weights=tmp_path)
    CELO2([torch.nn.Parameter(torch.ones(2))], weights="random:0")
