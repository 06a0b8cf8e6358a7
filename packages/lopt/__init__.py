"""Learned optimizers for PyTorch, with step kernels that tuners tune.

    from lopt import SmallFCLOpt
    opt = SmallFCLOpt(model.parameters(), weights="random:0")
    loss.backward(); opt.step()

The mathematics is in `lopt.features` and `lopt.optim`, one file per optimizer; how a step is carried out in `lopt.step`.
"""

from .models import MLP as MLP
from .models import SmallFCWeights as SmallFCWeights
from .optim import CELO2 as CELO2
from .optim import ELO as ELO
from .optim import ELOCELO2 as ELOCELO2
from .optim import MuLO as MuLO
from .optim import MuReadout as MuReadout
from .optim import SmallFCLOpt as SmallFCLOpt
from .optim import VeLO as VeLO
from .optim import mulo_groups as mulo_groups
