"""Harnesses for coverage-guided fuzzing. Each module has `one_input(data)`, which raises if it finds an error.

`python -m tests.fuzz wire -max_total_time=600` runs one under atheris (docs/internals/fuzzing.md);
tests/fuzz/test_corpus.py replays the inputs that earlier runs have kept.
"""
