"""Meta-weights: the small networks and how they are read and written."""

from .io import load as load
from .io import save_folder as save_folder
from .mlp import MLP as MLP
from .small_fc import SmallFCWeights as SmallFCWeights
