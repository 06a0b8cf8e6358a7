"""Programs that hang, lie, flood, flee or peek end within their limit, as a known kind of failure, and leave no process behind.

M1 to M9 and L1 were measured on Kernel Tuner itself, where most of them never return, or cheat. The jail is given
the programs as they are, without the static check that would turn most of them away.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from evotune.contract import FailureKind
from evotune.jail import Jail, JailLimits, Outcome
from evotune.toy import toy_recording
from metabench.replay import Limits

LIMITS = JailLimits(cpu_seconds=1, wall_seconds=2.0, memory_bytes=2**29)
GRACE = 5.0


class Unaudited(Jail):
    """A jail whose audit hook stays off, as if native code had gone round it, to try the filter of system calls below it."""

    _layers = ("seccomp",)


class Bare(Jail):
    """A jail without audit hook and filter, to try what namespaces, an empty root folder and limits hold."""

    _layers = ()


def program(body: str) -> str:
    """A class whose call has this body."""
    lines = "\n".join("        " + line for line in body.strip().splitlines())
    return f"import math, random, time\nclass X:\n    def __call__(self, func, searchspace):\n{lines}\n"


@pytest.fixture(scope="module")
def jail() -> Iterator[Jail]:
    with Jail(LIMITS) as jail:
        yield jail


def run(jail: Jail, body: str, evaluations: int | None = 5) -> Outcome:
    """Run a body on the toy space; check that it ended in time and left nothing."""
    started = time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        outcome = jail.run(program(body), "X", toy_recording(), Limits(evaluations=evaluations), seed=0)
    assert time.monotonic() - started < LIMITS.wall_seconds + GRACE
    assert processes_in(jail) == {jail._server._process.pid}  # type: ignore[union-attr]
    return outcome


def processes_in(jail: Jail) -> set[int]:
    """All processes whose working folder, or root, is the jail's scratch folder: they cannot hide from that by setsid."""
    scratch, found = jail._server._scratch, set()  # type: ignore[union-attr]
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if any(str((entry / link).readlink()).startswith(scratch) for link in ("cwd", "root")):
                    found.add(int(entry.name))
            except OSError:
                continue
    return found


def kind(outcome: Outcome) -> FailureKind | None:
    return outcome.failure.kind if outcome.failure else None


# -- the measured cases ---------------------------------------------------------------------------------------------------


def test_m1_asking_again_and_again_is_ended_by_the_cap_on_calls(jail: Jail) -> None:
    outcome = run(jail, "while func.budget_spent_fraction < 1:\n    func(searchspace.list[0])")
    assert kind(outcome) is FailureKind.NO_IMPROVEMENT
    assert (len(outcome.trace.rows), outcome.trace.calls) == (1, 10 * 12 + 1000)


def test_m2_an_exception_handler_does_not_swallow_the_end(jail: Jail) -> None:
    body = "while True:\n    try:\n        func(random.choice(searchspace.list))\n    except Exception:\n        pass"
    outcome = run(jail, body)
    assert outcome.failure is None and len(outcome.trace.rows) == 5


def test_a_bare_handler_that_swallows_even_that_is_ended(jail: Jail) -> None:
    body = "while True:\n    try:\n        func(random.choice(searchspace.list))\n    except:\n        pass"
    outcome = run(jail, body)
    assert kind(outcome) is FailureKind.TIMEOUT and len(outcome.trace.rows) == 5
    assert outcome.failure is not None and "must not be caught" in outcome.failure.message


def test_m3_illegal_points_only(jail: Jail) -> None:
    outcome = run(jail, "while True:\n    func((1, 2, 3, 4))")
    assert kind(outcome) is FailureKind.ILLEGAL_ONLY and outcome.trace.illegal == outcome.trace.calls > 1000


def test_m4_nan(jail: Jail) -> None:
    assert kind(run(jail, "while True:\n    func([math.nan] * 4)")) is FailureKind.ILLEGAL_ONLY


def test_m5_there_is_no_table_of_answers(jail: Jail) -> None:
    outcome = run(jail, "cache = func.tuning_options.cache\nreturn min(cache)")
    assert kind(outcome) is FailureKind.CRASH and len(outcome.trace.rows) == 0
    assert outcome.failure is not None and outcome.failure.line == 4 and "tuning_options" in outcome.failure.text


def test_m6_there_is_no_budget_to_raise(jail: Jail) -> None:
    assert kind(run(jail, "func.tuning_options.budget.max_fevals = 10**9")) is FailureKind.CRASH
    outcome = run(jail, "func.budget_spent_fraction = 0.0")
    assert kind(outcome) is FailureKind.CRASH
    outcome = run(jail, "func._fraction = -1e9\nfor c in searchspace.list:\n    func(c)")
    assert len(outcome.trace.rows) == 5, "what it believes of its budget does not matter"


def test_m7_revisits_are_answered_and_leave_no_rows(jail: Jail) -> None:
    body = "for _ in range(300):\n    func(searchspace.list[0]); func(searchspace.list[1])"
    outcome = run(jail, body)
    assert outcome.failure is None and len(outcome.trace.rows) == 2 and outcome.trace.revisits == 598


def test_m8_returning_at_once(jail: Jail) -> None:
    assert kind(run(jail, "return None")) is FailureKind.NO_EVALUATION


def test_m9_values_are_taken_by_equality(jail: Jail) -> None:
    body = "for block, *rest in searchspace.list:\n    func([float(block), *rest])"
    outcome = run(jail, body)
    assert outcome.failure is None and len(outcome.trace.rows) == 5 and outcome.trace.illegal == 0


@pytest.mark.parametrize(
    "body",
    [
        "while True:\n    pass",
        "time.sleep(1e6)",
        "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True:\n    time.sleep(1)",
    ],
)
def test_l1_a_hanging_program_is_ended_and_its_line_is_told(jail: Jail, body: str) -> None:
    outcome = run(jail, body)
    assert kind(outcome) is FailureKind.TIMEOUT
    assert outcome.failure is not None and outcome.failure.line in range(4, 8)


def test_a_busy_program_is_ended_by_the_cpu_time_it_used() -> None:
    """However much else the machine does, so that the same candidate fails alike everywhere."""
    with Jail(JailLimits(cpu_seconds=1, wall_seconds=60)) as patient:
        outcome = patient.run(program("while True:\n    pass"), "X", toy_recording(), Limits(), seed=0)
    assert kind(outcome) is FailureKind.TIMEOUT and outcome.failure is not None
    assert "1 CPU seconds" in outcome.failure.message and outcome.failure.line in (4, 5)


# -- hostile programs -----------------------------------------------------------------------------------------------------

TRIES = {
    "a file": "return open('/etc/passwd').read()",
    "a file to write": "open('/tmp/evotune-was-here', 'w')",
    "the home folder": "import os\nreturn os.listdir(os.path.expanduser('~'))",
    "a process": "import os\nos.fork()",
    "a command": "import os\nos.system('touch /tmp/evotune-was-here')",
    "a shell": "import subprocess\nsubprocess.run(['true'])",
    "a socket": "import socket\nsocket.socket()",
    "raw memory": "import ctypes\nctypes.string_at(id(func), 64)",
    "all objects": "import gc\nreturn gc.get_objects()",
    "a signal to others": "import os\nos.kill(os.getppid(), 9)",
}


@pytest.mark.parametrize("body", TRIES.values(), ids=list(TRIES))
def test_what_is_not_allowed_is_refused_with_its_line(jail: Jail, body: str) -> None:
    outcome = run(jail, body)
    assert kind(outcome) is FailureKind.FORBIDDEN
    assert outcome.failure is not None and outcome.failure.line in (4, 5)
    assert not Path("/tmp/evotune-was-here").exists()


NATIVE = {
    "a file": "import os\nos.open('/etc/passwd', os.O_RDONLY)",
    "a file to write": "import os\nos.open('/tmp/evotune-was-here', os.O_CREAT | os.O_WRONLY)",
    "the parent's environment": "import os\nos.open(f'/proc/{os.getppid()}/environ', os.O_RDONLY)",
    "the parent's memory": "import os\nos.open(f'/proc/{os.getppid()}/mem', os.O_RDONLY)",
    "a process": "import os\nos.fork()",
    "a session of its own": "import os\nos.setsid()",
    "a program": "import os\nos.execv('/bin/true', ['true'])",
    "a socket": "import socket\nsocket.socket()",
    "a signal to others": "import os\nos.kill(os.getppid(), 9)",
    "another user": "import os\nos.setuid(0)",
    "a thread": "import _thread\n_thread.start_new_thread(time.sleep, (1e6,))",
}


@pytest.fixture(scope="module")
def unaudited() -> Iterator[Jail]:
    with Unaudited(LIMITS) as jail:
        if not jail.protection()["system calls"]:
            pytest.skip("this system does not filter system calls")
        yield jail


@pytest.mark.parametrize("body", NATIVE.values(), ids=list(NATIVE))
def test_the_system_refuses_it_too(unaudited: Jail, body: str) -> None:
    outcome = run(unaudited, body)
    assert kind(outcome) is FailureKind.FORBIDDEN, outcome
    assert not Path("/tmp/evotune-was-here").exists()


def test_raw_memory_holds_no_answers(unaudited: Jail) -> None:
    """ctypes may read all of the process: the recording's values never were there."""
    body = (
        "import ctypes\nmaps = ctypes.CDLL(None)\nprint(maps.getpid() > 0)\nmaps.kill(1, 9)\nfunc(searchspace.list[0])"
    )
    outcome = run(unaudited, body)
    assert outcome.output.strip() in ("True", "") and len(outcome.trace.rows) in (0, 1)


def test_no_object_or_frame_of_the_parent_can_be_reached(unaudited: Jail) -> None:
    body = """
import gc, sys
names, frame = set(), sys._getframe()
while frame:
    names |= {type(v).__name__ for v in frame.f_locals.values()}
    frame = frame.f_back
names |= {type(o).__name__ for o in gc.get_objects()}
print(sorted(names & {"Recording", "Session", "Baseline", "Run", "Jail", "Evaluator"}))
for c in searchspace.list:
    func(c)"""
    outcome = run(unaudited, body)
    assert outcome.failure is None and outcome.output.strip() == "[]"


def test_a_thread_that_is_left_running_ends_with_its_process(jail: Jail) -> None:
    body = "import threading\nthreading.Thread(target=time.sleep, args=(1e6,)).start()"
    assert kind(run(jail, body)) is FailureKind.FORBIDDEN
    with Bare(LIMITS) as bare:
        assert kind(run(bare, body)) is FailureKind.NO_EVALUATION


def test_what_a_program_returns_is_never_unpickled(jail: Jail) -> None:
    body = """
class Trap:
    def __reduce__(self):
        return print, ("unpickled",)
for c in searchspace.list[:6]:
    func(c)
return Trap()"""
    outcome = run(jail, body, None)
    assert outcome.failure is None and outcome.output == "" and len(outcome.trace.rows) == 6


def test_50_gigabytes(jail: Jail) -> None:
    assert kind(run(jail, "import numpy as np\nreturn np.ones(50 * 2**30, dtype=np.uint8)")) is FailureKind.MEMORY
    assert kind(run(jail, "x = bytearray(2**30)")) is FailureKind.MEMORY


def test_exit_without_a_word(jail: Jail) -> None:
    assert kind(run(jail, "import os\nos._exit(0)")) is FailureKind.CRASH
    assert kind(run(jail, "raise SystemExit")) is FailureKind.CRASH


def test_a_segmentation_fault_is_a_crash_and_the_next_program_runs(jail: Jail) -> None:
    body = "import numpy as np\nx = np.lib.stride_tricks.as_strided(np.zeros(1), (2**40,), (8,))\nreturn x[2**38]"
    outcome = run(jail, body)
    assert kind(outcome) is FailureKind.CRASH and outcome.failure is not None and outcome.failure.line == 6
    assert run(jail, "for c in searchspace.list:\n    func(c)").failure is None


def test_a_gigabyte_of_output_is_cut_and_does_not_hold_us_up() -> None:
    body = "for _ in range(1024):\n    print('x' * 2**20)\nfor c in searchspace.list:\n    func(c)"
    with Jail(JailLimits(cpu_seconds=20)) as patient:
        outcome = patient.run(program(body), "X", toy_recording(), Limits(), seed=0)
    assert outcome.failure is None and len(outcome.output) <= LIMITS.output_bytes


def test_a_patched_clock_and_generator_are_its_own(jail: Jail) -> None:
    before = random_state = time.time()
    outcome = run(jail, "time.time = lambda: 0.0\nrandom.random = lambda: 0.5\nfor c in searchspace.list:\n    func(c)")
    assert outcome.failure is None and time.time() >= before == random_state


def test_a_forged_report_is_no_report(jail: Jail) -> None:
    """It may write to its pipe what it likes: nothing of it is believed but row numbers."""
    pipe = "import os\nfor fd in range(3, 64):\n    try:\n        os.write(fd, {})\n    except OSError:\n        pass"
    assert kind(run(jail, pipe.format("b'\\xfe\\xff\\xff\\xff' + b'\\xff\\xff\\xff\\x7f'"))) is FailureKind.CRASH
    assert kind(run(jail, pipe.format("b'\\xfe\\xff\\xff\\xff' + b'\\x04\\0\\0\\0' + b'cos\\n'"))) is FailureKind.CRASH
    asked = run(jail, pipe.format("b'\\xff\\xff\\xff\\x7f' * 3"))
    assert asked.trace.illegal >= 3, "a row that does not exist is an illegal configuration"


def test_asking_without_reading_does_not_block_us(jail: Jail) -> None:
    flood = "import os\nfor fd in range(3, 64):\n    try:\n        os.write(fd, bytes(60_000))\n    except OSError:\n        pass"
    body = flood + "\ntime.sleep(9)"
    assert kind(run(jail, body, None)) in (FailureKind.INTERFACE, FailureKind.TIMEOUT)


def test_a_program_finds_no_file_that_a_run_before_left() -> None:
    """Below audit hook and filter: its root folder is its own, empty, and gone with it."""
    with Bare(LIMITS) as bare:
        if not bare.protection()["isolation"]:
            pytest.skip("this system cannot isolate")
        for _ in range(2):
            body = "import os\nprint(os.listdir('/'))\ntry:\n    os.mkdir('/7.25')\nexcept OSError:\n    pass"
            outcome = run(bare, body + "\nfor c in searchspace.list:\n    func(c)")
            assert outcome.failure is None and outcome.output.strip() == "[]"


def test_a_program_learns_nothing_from_the_run_before(jail: Jail) -> None:
    run(jail, "random.seen = [func(c) for c in searchspace.list]", None)
    outcome = run(jail, "return min(random.seen)")
    assert kind(outcome) is FailureKind.CRASH and len(outcome.trace.rows) == 0


def test_the_environment_holds_no_secret(jail: Jail, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    with Jail(LIMITS) as fresh:
        outcome = run(fresh, "import os\nprint(sorted(os.environ))\nfor c in searchspace.list:\n    func(c)")
        assert outcome.failure is None and "PYTHONHASHSEED" in outcome.output and "KEY" not in outcome.output


@pytest.mark.parametrize("flee", ["os.setsid()", "signal.signal(signal.SIGTERM, signal.SIG_IGN); os.setsid()"])
def test_descendants_that_flee_are_found(jail: Jail, flee: str) -> None:
    """Below audit hook and filter: processes in sessions of their own, deaf to SIGTERM."""
    if not jail.protection()["subreaper"]:
        pytest.skip("this system has no subreaper")
    source = f"""
import os, signal, time
class X:
    def __call__(self, func, searchspace):
        for _ in range(3):
            if os.fork() == 0:
                {flee}
                if os.fork() == 0:
                    while True:
                        time.sleep(1)
                os._exit(0)
        for c in searchspace.list:
            func(c)
"""
    started = time.monotonic()
    with Bare(LIMITS) as bare:
        outcome = bare.run(source, "X", toy_recording(), Limits(evaluations=5), seed=0)
        assert outcome.failure is None and time.monotonic() - started < 5
        assert processes_in(bare) == {bare._server._process.pid}  # type: ignore[union-attr]


def test_a_fork_bomb_is_defused() -> None:
    source = (
        "import os\nclass X:\n    def __call__(self, func, searchspace):\n        while True:\n            os.fork()\n"
    )
    started = time.monotonic()
    with Bare(LIMITS) as bare:
        outcome = bare.run(source, "X", toy_recording(), Limits(evaluations=5), seed=0)
        assert outcome.failure is not None and time.monotonic() - started < LIMITS.wall_seconds + GRACE
        assert processes_in(bare) == {bare._server._process.pid}  # type: ignore[union-attr]
