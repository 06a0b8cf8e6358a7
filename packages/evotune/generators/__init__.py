"""Who writes code: `components` (no key, no network), `openai` (any OpenAI-compatible server), `replay` (recorded replies)."""

from __future__ import annotations

from collections.abc import Callable
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


_GENERATORS: dict[str, Callable[..., Generator]] = {"components": _components, "openai": _openai, "replay": _replay}


def names() -> list[str]:
    """Names of all generators."""
    return sorted(_GENERATORS)


def make(name: str, seed: int = 0, **options: Any) -> Generator:
    """A generator by name.

    Args:
        seed: of those that draw at random.
        options: the generator's own: `model`, `base_url`, ... for openai; `path` for replay.

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
