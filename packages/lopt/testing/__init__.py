"""Properties that every optimizer must have, as functions to call from a test. Exported: a new optimizer inherits the suite.

    from lopt.testing import CONTRACT, LEARNED, Subject
    mine = Subject("mine", lambda params, **options: MyOptimizer(params, **options))

    @pytest.mark.parametrize("check", CONTRACT, ids=lambda c: c.__name__)
    def test_contract(check):
        check(mine)

`CONTRACT` is torch.optim's own contract: `torch.optim.AdamW` passes all of it, which shows that the suite is fair.
`LEARNED` asks what torch's optimizers do not promise. A check raises AssertionError (or what the optimizer raises).
"""

from .contract import CONTRACT as CONTRACT
from .learned import LEARNED as LEARNED
from .subject import Subject as Subject
from .subject import registry as registry
