"""A mistake on the command line is one sentence with what is allowed; a run works from any folder and says where it wrote."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from metabench.kernel import find
from metabench.space import Space


def test_without_arguments_it_lists_its_verbs(metaopt) -> None:
    done = metaopt()
    assert done.returncode == 0
    assert all(verb in done.stdout for verb in ("demo", "score", "evolve", "tune", "record", "spaces", "zoo"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["scor"], "unknown verb 'scor'"),
        (["spaces", "show", "nope"], "unknown recording 'nope'"),
        (["zoo", "show", "nope"], "unknown optimizer 'nope'"),
        (["score", "optimizers=[nope]"], "unknown optimizer 'nope'; allowed: "),
        (["score", "spaces.recordings=[nope]"], "unknown recording 'nope'"),
        (["score", "spaces.root=/nowhere/at/all"], "is no folder"),
        (["score", "spaces.recordings=[gone.json]"], "gone.json cannot be read"),
        (["score", "repeats=0"], "scoring needs at least one optimizer, recording, repeat"),
        (["score", "repeats=two"], "repeats must be a whole number, not 'two'"),
        (["score", "repeats=1", "seed=x"], "seed must be a whole number, not 'x'"),
        (
            ["tune", "kernel=gemm", "budget=abc"],
            "a budget in evaluations must be a whole number of at least 1, not 'abc'",
        ),
        (["evolve", "seed=-4"], "evolution.seed must be at least 0, not -4"),
        (["evolve", "target=5"], "unknown target '5'; allowed: "),
        (["tune", "kernel=nope"], "unknown kernel 'nope'; allowed: "),
        (["record", "kernel=nope"], "unknown kernel 'nope'; allowed: "),
    ],
)
def test_a_wrong_name_is_one_sentence_and_exit_code_two(metaopt, arguments: list[str], message: str) -> None:
    done = metaopt(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unknown_group_lists_the_known_ones(metaopt) -> None:
    done = metaopt("score", "spaces=nope")
    assert done.returncode != 0
    assert "bundled_test" in done.stderr


def test_h6_relative_paths_mean_the_folder_it_was_started_in(metaopt, recording_file: Path) -> None:
    elsewhere = recording_file.parents[1] / "elsewhere"
    elsewhere.mkdir()
    relative = Path("..") / recording_file.relative_to(recording_file.parents[1])
    done = metaopt(
        "score", f"spaces.recordings=[{relative}]", "optimizers=[random_search]", "scoring.repeats=3", cwd=elsewhere
    )
    assert done.returncode == 0, done.stderr
    last = done.stdout.strip().splitlines()[-1]
    out = Path(last.split("  ")[0])
    assert out.is_relative_to(elsewhere / "runs" / "score")
    for name in ("scores.csv", "scores.txt", "performance_over_time.png", "provenance.json", ".hydra/overrides.yaml"):
        assert (out / name).is_file()


def test_h1_in_a_sweep_a_failing_job_is_reported_at_once_and_the_others_run(metaopt, recording_file: Path) -> None:
    done = metaopt(
        "score",
        "-m",
        f"spaces.recordings=[gone.json],[{recording_file}]",
        "optimizers=[random_search]",
        "scoring.repeats=2",
    )
    assert done.returncode != 0
    assert "gone.json cannot be read" in done.stderr
    logs = sorted((recording_file.parents[1] / "runs" / "score").glob("*/*/score.log"))
    assert "Traceback" in logs[0].read_text()
    assert list((recording_file.parents[1] / "runs" / "score").glob("*/1/scores.csv"))


def test_h1_when_every_job_of_a_sweep_fails_every_one_says_why(metaopt, tmp_path: Path) -> None:
    """With the reader's mistakes and with faults of ours alike."""
    done = metaopt("score", "-m", "spaces.recordings=[gone.json],5", "repeats=1,2", "hydra.sweep.dir=sweep")
    assert done.returncode != 0
    logs = sorted((tmp_path / "sweep").glob("*/score.log"))
    assert len(logs) == 4 and all("Traceback" in log.read_text() for log in logs)
    assert done.stderr.count("metaopt score spaces.recordings=") == 4


def test_a_file_is_scored_in_the_jail_unless_it_is_trusted(metaopt, recording_file: Path) -> None:
    reader = recording_file.parents[1] / "reader.py"
    body = "    def __call__(self, func, searchspace):\n        print(open(__file__).read())\n        func(searchspace.list[0])\n"
    reader.write_text("class Reader:\n" + body)
    options = ["score", f"spaces.recordings=[{recording_file}]", "scoring=direct", "repeats=2", "jail.seconds=5"]
    jailed = metaopt(*options, "optimizers=[reader.py,random_search]", "jail=true")
    assert jailed.returncode == 0 and "forbidden: open may not be used (line 3:" in jailed.stdout
    alone = metaopt(*options, "optimizers=[reader.py]")
    assert alone.returncode == 2 and "no optimizer has a score on all spaces" in alone.stderr
    trusted = metaopt(*options, "optimizers=[reader.py]", "jail=false")
    assert trusted.returncode == 0 and "forbidden" not in trusted.stdout


def test_a_file_tunes_from_the_jail_unless_it_is_trusted(metaopt, tmp_path: Path) -> None:
    body = "    def __call__(self, func, searchspace):\n        func(searchspace.list[-1])\n        print('it ran')\n"
    (tmp_path / "quiet.py").write_text("class Quiet:\n" + body + "        1 / 0\n")
    (tmp_path / "loud.py").write_text("import os\nclass Loud:\n" + body)
    options = ["tune", "kernel=gemm", "budget=2", "finalists=0", "keep=false"]
    refused = metaopt(*options, "tuner=loud.py")
    assert refused.returncode == 2 and "forbidden: os may not be imported" in refused.stderr
    jailed = metaopt(*options, "tuner=quiet.py", "budget=3")
    assert jailed.returncode == 0 and "it ran" not in jailed.stdout
    assert "by quiet (ended: error: CandidateFailed: crash: ZeroDivisionError: division by zero" in jailed.stdout
    trusted = metaopt(*options, "tuner=loud.py", "jail=false", "budget=3")
    assert trusted.returncode == 0 and "it ran" in trusted.stdout


def test_without_a_number_of_evaluations_the_whole_space_is_what_may_be_measured(metaopt) -> None:
    done = metaopt(
        "tune", "kernel=gemm", "budget=null", "seconds=1", "tuner=random_search", "finalists=0", "keep=false"
    )
    size = len(Space.from_t1(find("gemm").space_definition()))
    assert done.returncode == 0 and f"tuning gemm: 1/{size} " in done.stdout


def test_a_recording_that_is_still_open_and_a_definition_are_shown(
    metaopt, recording_file: Path, tmp_path: Path
) -> None:
    """A run that goes on, or was killed, leaves a cache without its closing braces: `score` takes it, and so must this."""
    whole = gzip.decompress(recording_file.read_bytes()).decode().rstrip()
    assert whole.endswith("}}}")
    (tmp_path / "toy" / "open.json").write_text(whole[:-2] + ",\n")
    shown = metaopt("spaces", "show", "toy/open.json")
    assert shown.returncode == 0 and shown.stdout.startswith("toy/open\n") and "60 of them valid" in shown.stdout
    definition = find("gemm").folder / "space.json"
    assert "restriction: " in metaopt("spaces", "show", str(definition)).stdout
    (tmp_path / "list.json").write_text("[1]")
    wrong = metaopt("spaces", "show", "list.json")
    assert (
        wrong.returncode == 2 and "list.json is no Kernel Tuner cache: expected an object, found list" in wrong.stderr
    )


def test_the_zoo_is_compared(metaopt) -> None:
    done = metaopt("zoo", "compare", "hybrid_vndx_fixed", "gp_general")
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and "all 12" in lines[0]
    assert [line.split()[0] for line in lines[-2:]] == ["gp_general", "hybrid_vndx_fixed"], "the better one first"
    assert "unknown optimizer of the zoo 'nope'; allowed: " in metaopt("zoo", "compare", "nope").stderr
    assert "no scores are kept of random_search" in metaopt("zoo", "compare", "random_search").stderr
