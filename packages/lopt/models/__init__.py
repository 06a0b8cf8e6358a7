"""Meta-weights: the small networks and how they are read and written."""

from .celo2 import CELO2Weights as CELO2Weights
from .mlp import MLP as MLP
from .pretrained import MetaWeights as MetaWeights
from .small_fc import SmallFCWeights as SmallFCWeights
from .velo import VeLOWeights as VeLOWeights
