"""Fuzzing: whatever the bytes are, nothing breaks its promises. CONTRIBUTING.md, Fuzzing.

Each target is a module with a function `check`, which takes any bytes, and raises where a promise is
broken. `corpus/` has a folder of inputs for each target, which together reach what was ever reached. `make
test` checks these, and seeded mutants of them. `make fuzz` looks for new ones, guided by coverage.
"""
