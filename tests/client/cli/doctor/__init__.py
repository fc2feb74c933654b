"""Tests of `kcast doctor`."""
