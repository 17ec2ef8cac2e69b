"""Hypothesis as it is, but for values that it finds in the sources: with these each change would play other scripts."""

from typing import Any

from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS, HypothesisProvider

BACKEND = "leveret-same-scripts"
"""For `settings(backend=…)`: one seed is the same scripts, whatever the sources say and whoever has imported them."""


class SameScripts(HypothesisProvider):
    """Draws from its random numbers alone."""

    def _maybe_draw_constant(self, *_: Any, **__: Any) -> None:
        return None


AVAILABLE_PROVIDERS[BACKEND] = f"{__name__}.{SameScripts.__name__}"
