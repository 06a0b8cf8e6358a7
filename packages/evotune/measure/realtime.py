"""Keep other processes from interrupting a timed run.

On a machine with more to do than cores, the scheduler takes the core away for milliseconds in the middle of most runs, and even
the least of ten times is then 50 % off. A real-time policy, for the timed runs alone, brings the spread back to a few per
cent. It takes root or CAP_SYS_NICE, and so is asked for, not assumed. Linux keeps 5 % of the time for others, so that a kernel
that hangs can still be killed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from metabench.errors import UserError


@contextlib.contextmanager
def realtime(wanted: bool = True) -> Iterator[None]:
    """Inside the block, this thread runs before every ordinary one.

    Raises:
        UserError: the system does not allow it.
    """
    if not wanted:
        yield
        return
    try:
        before = os.sched_getscheduler(0), os.sched_getparam(0)
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except (AttributeError, OSError) as error:
        raise UserError(
            f"real-time priority is not allowed here ({error}): it takes Linux, and root or CAP_SYS_NICE; leave realtime off"
        ) from error
    try:
        yield
    finally:
        os.sched_setscheduler(0, *before)
