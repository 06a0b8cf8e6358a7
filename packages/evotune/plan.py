"""What a run would ask and cost, before it is started: for `dry_run`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from metabench.recording import Recording

from .prompts import Prompts, spaces_of
from .settings import Settings

_CHARACTERS = 3.5  # of prompt text to a token, about
_PROGRAM_TOKENS = 1_500  # of a program, quoted in a prompt or replied, about
_CALL_SECONDS = 30.0  # of a call to a hosted model, about
_RUN_SECONDS = 0.3  # of one run of a candidate, about


@dataclass(frozen=True)
class Plan:
    """An estimate; every number but `calls` is one.

    Attributes:
        calls: to the generator, at most.
        prompt_tokens, reply_tokens: of all calls.
        usd: None if the model's price is not known.
        seconds: calls and evaluations one after the other's longest.
        first_prompt: as it would be sent; mutations: the prompts by which parents are varied.
    """

    calls: int
    prompt_tokens: int
    reply_tokens: int
    usd: float | None
    seconds: float
    first_prompt: str
    mutations: Sequence[str]

    def describe(self) -> str:
        """For a reader."""
        usd = "unknown (no price for this model)" if self.usd is None else f"{self.usd:.2f} USD"
        mutations = "\n".join(f"- {text}" for text in self.mutations)
        return (
            f"{self.calls} calls, about {self.prompt_tokens:,} prompt tokens and {self.reply_tokens:,} reply tokens; "
            f"cost {usd}; about {self.seconds / 60:.0f} minutes. Nothing was spent.\n\n"
            f"The first prompt:\n\n{self.first_prompt}\n\n"
            f"Later prompts quote their parents, with their scores, and ask:\n{mutations}"
        )


def plan(
    model: str,
    recordings: Sequence[Recording],
    settings: Settings,
    prompts: Prompts | None = None,
    prices: Mapping[str, tuple[float, float]] | None = None,
    concurrent: int = 1,
) -> Plan:
    """Estimate a run; nothing is asked of anyone.

    Args:
        model: whose price applies.
        prices: by model, USD for a million tokens of prompt and of reply.
        concurrent: calls in flight at once.
    """
    prompts = prompts or Prompts()
    task = prompts.task_text(spaces_of(recordings) if settings.info else None)
    first = prompts.role + task + prompts.example + prompts.output_format
    parents = sum(m.parents * m.weight for m in prompts.mutations) / sum(m.weight for m in prompts.mutations)
    varied = len(prompts.role + task + prompts.output_format) / _CHARACTERS + parents * _PROGRAM_TOKENS
    later = settings.calls - settings.parents
    asked = round(settings.parents * len(first) / _CHARACTERS + later * varied)
    said = settings.calls * _PROGRAM_TOKENS
    price = (prices or {}).get(model)
    usd = None if price is None else (asked * price[0] + said * price[1]) / 1e6
    calling = settings.calls * (_CALL_SECONDS if model != "components" else 0.0) / concurrent
    running = settings.calls * settings.repeats * len(recordings) * _RUN_SECONDS / settings.workers
    return Plan(settings.calls, asked, said, usd, max(calling, running), first, [m.text for m in prompts.mutations])
