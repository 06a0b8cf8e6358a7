"""What a newcomer relies on: links lead somewhere, no machine's paths are in the tree, files stay short enough to read."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[1]
PACKAGES = CHECKOUT / "packages"
SOURCES = sorted(PACKAGES.rglob("*.py"))


def tracked() -> list[Path]:
    """Files under version control; all files where there is no git."""
    if not (CHECKOUT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run(["git", "ls-files"], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    return [CHECKOUT / line for line in listed.stdout.splitlines() if (CHECKOUT / line).is_file()]


def test_every_relative_link_in_the_documentation_leads_somewhere() -> None:
    broken = [
        f"{page.relative_to(CHECKOUT)} -> {target}"
        for page in tracked()
        if page.suffix == ".md"
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())
        if "://" not in target and not target.startswith("mailto:") and not (page.parent / target).exists()
    ]
    assert not broken


def test_no_file_names_a_path_of_one_machine() -> None:
    pattern = re.compile(r"(?<![\w.])/(work|root|home/\w+)/")
    text = {".py", ".md", ".toml", ".yaml", ".yml", ".sh", ".cfg", ".json", ".cu", ".cpp", ""}
    found = [
        p.relative_to(CHECKOUT)
        for p in tracked()
        if p.suffix in text and p.stat().st_size < 400_000 and pattern.search(p.read_text(errors="ignore"))
    ]
    assert not found


def functions_of(path: Path) -> list[ast.FunctionDef]:
    return [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)]


def test_files_and_functions_stay_short() -> None:
    # An optimizer of the zoo is one file, whatever it takes: people copy it out.
    long_files = [p.name for p in SOURCES if p.parent.name != "zoo" and p.read_text().count("\n") > 450]
    long_functions = [
        f"{p.name}:{f.name}" for p in SOURCES for f in functions_of(p) if (f.end_lineno or 0) - f.lineno > 60
    ]
    assert not long_files
    assert not long_functions


def test_siblings_never_import_each_other() -> None:
    banned = {"evotune": {"lopt", "metaopt"}, "lopt": {"evotune", "metaopt"}, "metabench": {"evotune", "lopt", "torch"}}
    found = []
    for package, names in banned.items():
        for path in (PACKAGES / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                modules = (
                    [alias.name for alias in node.names]
                    if isinstance(node, ast.Import)
                    else [node.module or ""]
                    if isinstance(node, ast.ImportFrom) and node.level == 0
                    else []
                )
                found += [f"{path.name} imports {m}" for m in modules if m.split(".")[0] in names]
    assert not found


def test_metabench_needs_numpy_alone() -> None:
    """Importing every module of the ground floor pulls in nothing heavy."""
    code = (
        "import sys, pkgutil, importlib, metabench\n"
        "for m in pkgutil.walk_packages(metabench.__path__, 'metabench.'):\n"
        "    if '_kernels' not in m.name and '.testing' not in m.name: importlib.import_module(m.name)\n"
        "heavy = {'torch', 'pandas', 'pyarrow', 'scipy', 'sklearn', 'matplotlib', 'kernel_tuner', 'hydra'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)\n"
    )
    import sys

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
