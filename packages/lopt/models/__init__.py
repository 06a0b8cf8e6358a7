"""Meta-weights: the small networks and how they are read and written."""

from .celo2 import CELO2Weights as CELO2Weights
from .io import load as load
from .io import save_folder as save_folder
from .mlp import MLP as MLP
from .small_fc import SmallFCWeights as SmallFCWeights
from .velo import VeLOWeights as VeLOWeights
