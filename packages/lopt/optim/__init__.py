"""The optimizers, one file each."""

from .base import LearnedOptimizer as LearnedOptimizer
from .celo2 import CELO2 as CELO2
from .elo import ELO as ELO
from .elo_celo2 import ELOCELO2 as ELOCELO2
from .mulo import MuLO as MuLO
from .mulo import MuReadout as MuReadout
from .mulo import mulo_groups as mulo_groups
from .small_fc import SmallFCLOpt as SmallFCLOpt
from .velo import VeLO as VeLO
