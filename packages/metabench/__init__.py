"""metabench: what optimizers are measured with. Search spaces, recordings, replay, scores, timing, results, plots."""

from .errors import UserError as UserError
from .recording import Recording as Recording
from .recording import load as load
from .recording import save as save
from .replay import Limits as Limits
from .replay import Stop as Stop
from .replay import Trace as Trace
from .replay import replay as replay
from .score import score as score
from .searchspace import Searchspace as Searchspace
from .space import Space as Space
