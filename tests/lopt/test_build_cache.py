"""The cache of compiled kernels: many processes at once, read-only disks, torn files, every ingredient in the key."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lopt.step import build

SOURCE = 'extern "C" float answer() { return ANSWER; }\n'


@pytest.fixture
def source(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "answer.cpp"
    path.write_text(SOURCE)
    return path


def files():
    return sorted(p.name for p in build.cache_folder().rglob("*") if p.is_file())


def test_every_ingredient_is_in_the_key(source, monkeypatch):
    base = build.key("a", ["g++"], ["-O3"])
    assert (
        len(
            {base, build.key("b", ["g++"], ["-O3"]), build.key("a", ["c++"], ["-O3"]), build.key("a", ["g++"], ["-O2"])}
        )
        == 4
    )
    monkeypatch.setattr(build, "_version", lambda command: "another release")
    assert build.key("a", ["g++"], ["-O3"]) != base
    monkeypatch.undo()
    monkeypatch.setattr(build, "processor", lambda: "another processor")
    assert build.key("a", ["g++"], ["-O3"]) != base


def test_two_configurations_are_two_libraries(source):
    for value in (1, 2):
        assert build.load(source, ["-O1"], {"ANSWER": value}) is not None
    assert len(files()) == 2


def test_a_second_load_does_not_compile(source, monkeypatch):
    build.load(source, ["-O1"], {"ANSWER": 1})
    monkeypatch.setattr(build, "_compile", lambda *_: pytest.fail("compiled again"))
    build.load(source, ["-O1"], {"ANSWER": 1})


def test_processes_at_once_share_one_library(source):
    program = ("import sys; from pathlib import Path; from lopt.step import build; "
               "build.load(Path(sys.argv[1]), ['-O1'], {'ANSWER': 7})")  # fmt: skip
    running = [subprocess.Popen([sys.executable, "-c", program, str(source)], stderr=subprocess.PIPE) for _ in range(3)]
    errors = [p.communicate(timeout=600)[1] for p in running]
    assert [p.returncode for p in running] == [0, 0, 0], errors
    assert len(files()) == 1, "one library, no half-built or temporary file"


def test_a_torn_library_is_built_again(source):
    build.load(source, ["-O1"], {"ANSWER": 1})
    (name,) = files()
    (build.cache_folder() / name).unlink()  # a new file: the old one is mapped into this process
    (build.cache_folder() / name).write_bytes(b"half a libr")
    assert build.load(source, ["-O1"], {"ANSWER": 1}) is not None
    assert len(files()) == 1 and (build.cache_folder() / name).stat().st_size > 1000


def test_a_cache_that_cannot_be_written_is_done_without(source, monkeypatch, tmp_path):
    """A file stands where the folder should be: like a read-only disk, but it also stops root."""
    blocked = tmp_path / "blocked"
    blocked.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    Path(os.environ["TMPDIR"]).mkdir()
    monkeypatch.setattr("tempfile.tempdir", None)
    assert build.load(source, ["-O1"], {"ANSWER": 1}) is not None
    assert not list((tmp_path / "temporary").iterdir()), "the temporary folder is gone"
    monkeypatch.setattr("tempfile.tempdir", None)


def test_a_compile_error_names_source_and_line(source):
    source.write_text("int broken( {\n")
    with pytest.raises(build.BuildError, match=r"does not compile answer.cpp.*answer.cpp:1"):
        build.load(source, [], {})
    assert files() == []
