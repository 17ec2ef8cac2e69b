"""A Hypothesis backend without constants found in the source code: with these, each change would play other scripts."""

from typing import Any

from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS, HypothesisProvider

BACKEND = "leveret-same-scripts"
"""For `settings(backend=…)`: one seed gives the same scripts, whatever the sources contain and other tests import."""


class SameScripts(HypothesisProvider):
    """Draws from its random numbers only."""

    def _maybe_draw_constant(self, *_: Any, **__: Any) -> None:
        return None


AVAILABLE_PROVIDERS[BACKEND] = f"{__name__}.{SameScripts.__name__}"
