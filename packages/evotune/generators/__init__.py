"""Who writes code: `components` (no key, no network), `openai` (any OpenAI-compatible server), `mixture` (several models),
`replay` (recorded replies)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from metabench.errors import UserError, choose

from .base import Generator as Generator
from .base import NoReply as NoReply
from .base import Reply as Reply


def _components(seed: int = 0, **options: Any) -> Generator:
    from .components import ComponentsGenerator

    return ComponentsGenerator(seed=seed, **options)


def _openai(seed: int = 0, **options: Any) -> Generator:
    from .openai import OpenAIGenerator

    return OpenAIGenerator(**options)


def _replay(seed: int = 0, **options: Any) -> Generator:
    from .replay import ReplayGenerator

    return ReplayGenerator.from_file(**options)


def _mixture(members: Sequence[Mapping[str, Any]], seed: int = 0, adapt: bool = True) -> Generator:
    from .mixture import MixtureGenerator

    options = [dict(member) for member in members]
    weights = [float(one.pop("weight", 1.0)) for one in options]
    made = [make(str(one.pop("name", "openai")), seed=seed, **one) for one in options]
    return MixtureGenerator(made, weights, seed, adapt)


_GENERATORS: dict[str, Callable[..., Generator]] = {
    "components": _components, "mixture": _mixture, "openai": _openai, "replay": _replay,
}  # fmt: skip


def names() -> list[str]:
    """Names of all generators."""
    return sorted(_GENERATORS)


def make(name: str, seed: int = 0, **options: Any) -> Generator:
    """A generator by name.

    Args:
        seed: of those that draw at random.
        options: the generator's own: `model`, `base_url`, ... for openai; `path` for replay; `members` for a mixture, each the
            options of one generator with its `name` and `weight`.

    Raises:
        UserError: no such generator (the allowed ones are listed), or an option that it does not take.
    """
    choose(name, names(), "generator")
    try:
        return _GENERATORS[name](seed=seed, **options)
    except TypeError as error:
        raise UserError(
            f"generator {name!r} cannot be made with {', '.join(options) or 'no options'}: {error}"
        ) from error
