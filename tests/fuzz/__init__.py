"""Harnesses for coverage-guided fuzzing: each module has `one_input(data)`, which raises for a finding, else not.

`python -m tests.fuzz wire -max_total_time=600` runs one under atheris (docs/internals/fuzzing.md);
tests/fuzz/test_corpus.py replays what earlier runs have kept.
"""
