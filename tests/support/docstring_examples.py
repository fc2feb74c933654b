"""Runs the examples in a module's docstrings."""

import doctest
from importlib import import_module


def failing_examples(module: str) -> int:
    """The number of examples that fail."""
    return doctest.testmod(import_module(module)).failed


def with_examples(module: str) -> list[str]:
    """What of a module has examples, sorted: functions, classes and methods by their names in it."""
    tests = doctest.DocTestFinder().find(import_module(module))
    return sorted(test.name.removeprefix(f"{module}.") for test in tests if test.examples)
