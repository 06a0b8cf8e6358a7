"""Learned optimizers for PyTorch, with step kernels that tuners tune.

    from lopt import VeLO
    opt = VeLO(model.parameters(), num_steps=10_000, weights="hub:Pauljanson002/VeLO_RNN+Pauljanson002/VeLO_MLP")
    loss = opt.step(closure)            # or: loss.backward(); opt.step(loss=loss)

The mathematics is in `lopt.features` and `lopt.optim`, one file per optimizer; meta-weights are in `lopt.models`; how a step
is carried out is in `lopt.step`; `lopt.testing` holds the properties that every optimizer must have.
"""

from .models import MLP as MLP
from .models import CELO2Weights as CELO2Weights
from .models import MetaWeights as MetaWeights
from .models import SmallFCWeights as SmallFCWeights
from .models import VeLOWeights as VeLOWeights
from .optim import CELO2 as CELO2
from .optim import ELO as ELO
from .optim import ELOCELO2 as ELOCELO2
from .optim import LearnedOptimizer as LearnedOptimizer
from .optim import MuLO as MuLO
from .optim import MuReadout as MuReadout
from .optim import SmallFCLOpt as SmallFCLOpt
from .optim import VeLO as VeLO
from .optim import mulo_groups as mulo_groups
from .registry import available as available
from .registry import create as create
