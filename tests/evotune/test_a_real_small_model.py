"""A real language model behind a real server: the run ends cleanly and says what it was, however bad the model's programs are.

Not part of the suite: start any OpenAI-compatible server, such as `llama-server -m MODEL.gguf --port 8080`, and

    export METAOPT_LLM_URL=http://127.0.0.1:8080/v1 METAOPT_LLM_MODEL=MODEL
    python -m pytest -m llm tests/evotune/test_a_real_small_model.py -s
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from evotune.evolve import COMPLETE, evolve
from evotune.generators import make
from evotune.jail import JailLimits
from evotune.lineage import report
from metabench.recording import Recording

URL = os.environ.get("METAOPT_LLM_URL", "")
CALLS = 8


@pytest.mark.llm
@pytest.mark.skipif(
    not URL, reason="needs a language model: METAOPT_LLM_URL=http://HOST:PORT/v1 (and METAOPT_LLM_MODEL)"
)
def test_the_run_ends_cleanly_and_is_reported_honestly(
    recording: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    model = os.environ.get("METAOPT_LLM_MODEL", "local")
    generator = make("openai", model=model, base_url=URL, max_tokens=600, timeout=180.0, retries=1, concurrent=1)
    settings = {"parents": 2, "offspring": 3, "calls": CALLS, "repeats": 2, "finalists": 1, "confirmations": 2}
    limits = JailLimits(cpu_seconds=2, wall_seconds=10)
    result = evolve(generator, [recording], tmp_path, limits=limits, **settings)
    generator._client.close()  # type: ignore[attr-defined]
    assert len(result.history) == CALLS and result.ended == COMPLETE
    valid = [c for c in result.history if c.failure is None]
    assert sum(result.failures.values()) == CALLS - len(valid)
    assert (result.source is None) == (not valid) and result.usage["usd"] == "unknown"
    if not valid:
        assert "none of 8 candidates was valid" in result.why_none()
    page = report(tmp_path).read_text()
    print(page)
    assert f"{CALLS} of {CALLS} calls to {model}" in page
