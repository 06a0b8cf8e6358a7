"""The optimizers, one file each."""

from .small_fc import SmallFCLOpt as SmallFCLOpt
