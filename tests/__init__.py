"""Tests: one file per module, then whole behaviours. Helpers are imported as `from tests.x import`."""
