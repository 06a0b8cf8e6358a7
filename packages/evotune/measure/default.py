"""What a kernel's source takes where nothing is chosen: its macros, as the compiler sees them with the flags at hand.

space.json states one default for all machines; a source may choose by `#ifdef __AVX512F__`, and then "default" in a table
must be what runs there.
"""

from __future__ import annotations

import re
import subprocess
from typing import Any

from metabench.space import Space

from .backend import source_of
from .task import Task


def of_source(task: Task, space: Space) -> dict[str, Any]:
    """{parameter: value} of the parameters that the source gives a value from the space; {} if it is not to be preprocessed."""
    source = source_of(task.kernel, task.backend)
    command = [task.compiler, *task.flags, f"-I{task.kernel.folder}", "-dM", "-E", str(source)]
    try:
        told = subprocess.run(command, capture_output=True, text=True, check=False, timeout=task.build_seconds).stdout
    except (OSError, subprocess.TimeoutExpired):
        return {}
    macros = dict(re.findall(r"^#define (\w+) (\S+)$", told, re.MULTILINE))
    written = {
        name: {str(int(v) if isinstance(v, bool) else v): v for v in values}
        for name, values in space.tune_params.items()
    }
    return {name: values[macros[name]] for name, values in written.items() if macros.get(name) in values}
