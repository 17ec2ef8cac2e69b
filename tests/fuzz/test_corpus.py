"""Replays the fuzzing corpus on both cores, without a fuzzer; each input once reached code that no other reached."""

from __future__ import annotations

import importlib

import pytest

from .corpus import NAMES, inputs


@pytest.mark.parametrize("name", NAMES)
def test_no_input_is_a_finding(name: str) -> None:
    one_input = importlib.import_module(f"{__package__}.{name}").one_input
    found = inputs(name)
    assert len(found) > 50, f"the corpus of {name} is missing"
    for digest, data in found:
        try:
            one_input(data)
        except BaseException as error:
            raise AssertionError(f"{name}: input {digest} of the corpus is a finding: {error!r}") from error
