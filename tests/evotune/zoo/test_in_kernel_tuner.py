"""Each file dropped into Kernel Tuner: its OptAlg, its search space, failures that cost the largest float, its own stop."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evotune import zoo
from metabench.replay import Stop
from metabench.testing import SPACES, recording

pytest.importorskip("kernel_tuner")


def test_the_classes_are_kernel_tuners(make: Callable[[], Any]) -> None:
    from kernel_tuner.strategies.wrapper import OptAlg

    optimizer = make()
    assert isinstance(optimizer, OptAlg)
    assert optimizer.costfunc_kwargs == {"scaling": False, "snap": False}


def test_it_runs_on_kernel_tuners_search_space(make: Callable[[], Any]) -> None:
    from kernel_tuner.searchspace import Searchspace

    space = SPACES["a few hundred"]
    theirs = Searchspace(space.tune_params, ["c == 1 or a > 2"], 1024)
    on = recording(space, failing=0.3)
    asked: list[tuple] = []

    class Func:
        budget_spent_fraction = 0.5

        def __call__(self, config: Any, check_restrictions: bool = True) -> float:
            if len(asked) == 40:
                raise Stop("budget")
            asked.append(tuple(config))
            loss = on.losses[on.space.find(tuple(config))]
            return loss if loss < float("inf") else sys.float_info.max

    with pytest.raises(Stop):
        make()(Func(), theirs)
    assert len(set(asked)) == 40


@pytest.mark.parametrize("name", zoo.names())
def test_a_file_stands_alone(name: str, tmp_path: Path) -> None:
    """Copied into a folder (gp_transfer with gp_general beside it), it loads without this toolkit and without Kernel Tuner."""
    for file in {name, "gp_general"}:
        shutil.copy(zoo.entry(file).path, tmp_path)
    blocked = "import sys; sys.modules.update(dict.fromkeys(['evotune', 'metabench', 'kernel_tuner'])); "
    done = subprocess.run(
        [sys.executable, "-c", f"{blocked} sys.path.insert(0, '.'); import {name}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
