"""Tests of kcast.loadtest.store."""
