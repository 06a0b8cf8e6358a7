"""A space that an optimizer was evolved on is marked in the table, from its file to the printed page."""

from __future__ import annotations

from pathlib import Path

import pytest

from evotune import zoo
from evotune.export import render
from metabench.registry import Named

PROGRAM = """
class Sampler:
    def __call__(self, func, searchspace):
        for config in searchspace.get_random_sample(searchspace.size):
            func(config)
"""


@pytest.mark.parametrize("jail", ["true", "false"])
def test_an_exported_program_is_marked_where_it_was_evolved(metaopt, recording_file: Path, jail: str) -> None:
    folder = recording_file.parents[1]
    (folder / "evolved.py").write_text(render(PROGRAM, {"kind": "evolved", "spaces": ["toy/bench"]}))
    (folder / "elsewhere.py").write_text(render(PROGRAM, {"kind": "evolved", "spaces": ["toy/other", "toyota"]}))
    done = metaopt(
        "score", f"spaces.recordings=[{recording_file}]", "optimizers=[evolved.py,elsewhere.py]", "repeats=2",
        "scoring=direct", f"jail.enabled={jail}",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    table = done.stdout.partition("\n\n")[0]
    rows = {line.split()[0]: line for line in table.splitlines() if line.strip()}
    assert "]*" in rows["evolved"] and "]*" not in rows["elsewhere"]
    assert "* seen: its provenance says that the optimizer was evolved on this space" in done.stdout


@pytest.mark.parametrize("name", zoo.names())
def test_scoring_sees_the_provenance_of_every_entry_of_the_zoo(name: str) -> None:
    told = Named(name).provenance
    assert told and told == zoo.entry(name).provenance
