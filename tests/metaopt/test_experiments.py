"""The papers' experiments: presets that compose, a sweep that goes on where it stopped, tables that say what was not run."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
TINY = [
    "evolution.parents=1",
    "evolution.offspring=1",
    "evolution.calls=2",
    "evolution.repeats=1",
    "evolution.finalists=1",
]
TINY += ["evolution.confirmations=1"]


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tables", CHECKOUT / "experiments" / "tables.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    __import__("sys").modules["tables"] = module  # where dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def run(folder: Path, info: bool, kernel: str, seed: int, p: list[float]) -> None:
    told = {"info": info, "seed": seed, "model": "m", "recordings": [f"{kernel}/one"]}
    folder.mkdir(parents=True)
    (folder / "evolution.json").write_text(json.dumps({"settings": told, "best": {"runs": {f"{kernel}/one": p}}}))


def test_tables_of_the_runs_there_are(tables: ModuleType, tmp_path: Path, monkeypatch, capsys) -> None:
    run(tmp_path / "a", True, "gemm_milo", 0, [0.5, 0.7])
    run(tmp_path / "b", True, "gemm_milo", 1, [0.8])
    run(tmp_path / "c", False, "gemm_milo", 0, [0.5])
    monkeypatch.setattr("sys.argv", ["tables.py", str(tmp_path), "--targets", "gemm,hotspot", "--seeds", "2"])
    tables.main()
    text = capsys.readouterr().out
    assert "3 of 8 runs exist; model: m." in text
    assert "| gemm | true | 0.600 | 0.800 | 0.700 | 0.141 |" in text
    assert "| gemm | false | 0.500 | not run | 0.500 | - |" in text
    assert "| hotspot | true | not run | not run | not run | - |" in text
    assert "| gemm | 0.700 | 0.500 | +40.0 % |" in text
    assert "| mean of the applications |  |  | not run |" in text, "a mean of what there is would pass for the whole"
    assert "100 (P with info - P without) / |P without|" in text


def test_the_sweep_of_the_issue_runs_and_called_again_skips_what_finished(metaopt) -> None:
    command = [
        "evolve",
        "-m",
        "info=true,false",
        "target=convolution,dedispersion",
        "seed=0",
        "hydra.sweep.dir=sweep",
        *TINY,
    ]
    first = metaopt(*command)
    assert first.returncode == 0 and first.stdout.count("candidates in") == 4, first.stderr
    assert "convolution/avx2" in first.stdout and "dedispersion/avx2" in first.stdout
    again = metaopt(*command)
    assert (
        again.returncode == 0 and again.stdout.count("(finished before)") == 4 and "candidates in" not in again.stdout
    )


@pytest.mark.parametrize(("preset", "jobs"), [("paper_ablation", 20), ("components_targets", 10)])
def test_presets_are_the_sweeps_that_they_say(metaopt, preset: str, jobs: int) -> None:
    done = metaopt("evolve", f"experiment={preset}", "dry_run=true", "spaces=bundled", "spaces.root=null")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("100 calls, about") == jobs


def test_a_killed_run_is_taken_up_by_its_folder_alone(metaopt, tmp_path: Path) -> None:
    first = metaopt("evolve", "seed=3", "generator=components", "evolution.calls=2", *TINY, "hydra.run.dir=run")
    assert first.returncode == 0, first.stderr
    (tmp_path / "run" / "done.json").unlink()
    again = metaopt("evolve", "resume=run", "evolution.workers=1")
    assert again.returncode == 0, again.stderr
    last = [done.stdout.strip().splitlines()[-1].partition("best: ")[2] for done in (first, again)]
    assert last[0] == last[1]
    missing = metaopt("evolve", "resume=nowhere")
    assert missing.returncode == 2 and "is no archive of an evolution" in missing.stderr
    assert "other settings (repeats)" in metaopt("evolve", "resume=run", "evolution.repeats=2").stderr


def test_an_unknown_target_lists_the_known_ones(metaopt) -> None:
    done = metaopt("evolve", "target=fft")
    assert done.returncode == 2 and "unknown target 'fft'; allowed: convolution, dedispersion" in done.stderr


# ---- schedules -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def study() -> ModuleType:
    spec = importlib.util.spec_from_file_location("study", CHECKOUT / "experiments" / "schedules" / "study.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def row(schedule: str, lr: float, seed: int, final: float | None, decay: str = "none") -> dict:
    varied = {"schedule": schedule, "decay": decay, "lr": lr, "seed": seed, "steps": 9, "weight_decay": 0.0}
    return {"task": "t", "optimizer": "adamw", **varied, "first": 3.0, "final": final, "mean": final}


def test_the_study_of_schedules_says_what_is_stable_what_diverged_and_what_was_not_run(study: ModuleType) -> None:
    rows = [
        row("constant", 0.1, 0, 1.0),
        row("constant", 0.1, 1, 1.2),
        row("constant", 1.0, 0, None),
        row("constant", 1.0, 1, 1.0),
    ]
    rows += [row("cosine", 0.1, 0, 1.0), row("cosine", 0.1, 1, 1.0), row("cosine", 1.0, 0, 1.15)]
    rows += [row("cosine", 0.1, 0, 2.0, "strong")]
    text = study.page(study.Study(rows), 20)
    assert "8 trainings exist, of 20" in text
    assert "| constant | 1.1 (0.2) | diverged | 0.1 |" in text, "a seed that diverged is not left out of a mean"
    assert "| cosine | 1 (0) | 1.15 (one seed) | 0.1, 1 |" in text
    assert "| cosine, strong decay | 2 (one seed) | not run | not run |" in text
    assert "| t | adamw | constant -> cosine | 1.00, 0.83 (lr 0.1) | diverged (lr 1) |" in text


def test_the_preset_of_schedules_sweeps_decays_and_its_study_finds_the_runs(
    metaopt, study: ModuleType, tmp_path: Path
) -> None:
    few = ["learned_optimizer=adamw", "seed=0", "task=vit_tiny", "task.batch=2", "steps=2", "hydra.sweep.dir=sweep"]
    done = metaopt("train", "experiment=schedules", "learned_optimizer.schedule=late", "decay=strong", *few)
    assert done.returncode == 0, done.stderr
    rows, stamp = study.collect(tmp_path / "sweep")
    assert [(r["schedule"], r["decay"], r["weight_decay"], r["lr"]) for r in rows] == [
        ("late", "strong", 0.33, lr) for lr in (0.001, 0.003, 0.01)
    ]
    assert "versions" in stamp and all(r["first"] > 0 and r["final"] > 0 for r in rows)
    study.draw(study.Study(rows), tmp_path / "figure")
    assert (tmp_path / "figure.png").is_file() and (tmp_path / "figure.csv").read_text().count("strong") == 3
