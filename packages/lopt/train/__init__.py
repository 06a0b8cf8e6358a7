"""Training with any optimizer, learned or not, and what goes around it: schedules, checkpoints, trackers."""

from .loop import Result as Result
from .loop import Settings as Settings
from .loop import Training as Training
from .optimizers import build as build
