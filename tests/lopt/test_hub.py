"""The Hub, by a stand-in on the loopback interface: what is pushed comes back bit for bit, offline it is said in a sentence."""

from __future__ import annotations

import json

import pytest
import torch
from hub_stand_in import HubStandIn
from huggingface_hub.utils import disable_progress_bars, enable_progress_bars

from lopt import CELO2, CELO2Weights, SmallFCWeights, VeLOWeights


@pytest.fixture
def hub(tmp_path, monkeypatch):
    stand_in = HubStandIn()
    monkeypatch.setenv("HF_ENDPOINT", stand_in.url)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    disable_progress_bars()
    yield stand_in
    stand_in.close()
    enable_progress_bars()


def test_push_and_pull(hub):
    weights = CELO2Weights.random(5)
    address = weights.push_to_hub(
        "user/celo2-tiny", token="hf_test", description="Random numbers, for a test.", license="mit"
    )
    assert address.endswith("user/celo2-tiny")
    assert sorted(hub.files["user/celo2-tiny"]) == ["README.md", "config.json", "model.safetensors"]
    card = hub.files["user/celo2-tiny"]["README.md"].decode()
    assert (
        card.startswith("---\nlicense: mit\n")
        and "Random numbers, for a test." in card
        and "hub:user/celo2-tiny" in card
    )
    optimizer = CELO2([torch.nn.Parameter(torch.ones(2, 2))], weights="hub:user/celo2-tiny")
    assert torch.equal(optimizer._group_values[0]["weights"].mlp.weights[0], weights.mlp.weights[0])
    again = CELO2Weights.from_pretrained("hub:user/celo2-tiny@main")
    assert torch.equal(again.mlp.weights[2], weights.mlp.weights[2])


def test_velo_from_two_repositories(hub):
    weights = VeLOWeights.random(0, width=8, bank=4)
    weights.push_to_hub("user/rnn", token="hf_test")
    weights.push_to_hub("user/mlp", token="hf_test")
    again = VeLOWeights.from_pretrained("hub:user/rnn+user/mlp")
    assert torch.equal(again.lstm.weight, weights.lstm.weight)


def test_mulos_repository_has_mulos_offsets(hub):
    """The published checkpoint has none, PyLO assumes them."""
    SmallFCWeights.random(0).push_to_hub("btherien/mulo", token="hf_test")
    config = json.loads(hub.files["btherien/mulo"]["config.json"])
    hub.files["btherien/mulo"]["config.json"] = json.dumps(
        {k: v for k, v in config.items() if k != "decay_offsets"}
    ).encode()
    assert SmallFCWeights.from_pretrained("hub:btherien/mulo").rms_offsets.tolist() == pytest.approx([0.01079706])


def test_not_there_and_not_cached_is_one_sentence(hub):
    with pytest.raises(ValueError, match=r"hub:user/none is not in the local cache.*random:SEED") as caught:
        CELO2Weights.from_pretrained("hub:user/none")
    assert "\n" not in str(caught.value)


def test_the_cache_serves_when_the_hub_is_away(hub, monkeypatch):
    weights = CELO2Weights.random(5)
    weights.push_to_hub("user/celo2-tiny", token="hf_test")
    CELO2Weights.from_pretrained("hub:user/celo2-tiny")
    hub.close()
    again = CELO2Weights.from_pretrained("hub:user/celo2-tiny")
    assert torch.equal(again.mlp.weights[0], weights.mlp.weights[0])
