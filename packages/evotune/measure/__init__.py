"""Configuration -> outcome, on this machine: build, run, check in full, time. `record` and `tune` stand on it.

outcome    what measuring one configuration came to; a failure is an outcome
task       what is measured: kernel, flags, sizes, time-outs
backend    builds a configuration through Kernel Tuner's backends
bench      build, check, time: what a worker does with a configuration
worker     the process around it; pool: all of them, from outside
recorder   every configuration -> a recording
runner     Kernel Tuner's runner over the pool; drive: optimizers and strategies on top of it
jailed     a file as an optimizer, which asks from the jail
default    the configuration that a source takes by itself
tuner      an optimizer's choice -> the tuned entry
"""

from .device import INSTRUCTION_SETS as INSTRUCTION_SETS
from .interrupt import Interrupted as Interrupted
from .outcome import Outcome as Outcome
from .recorder import record as record
from .task import Task as Task
from .tuner import Tuning as Tuning
from .tuner import tune as tune
