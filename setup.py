"""Builds kcast as pyproject.toml says, and adds what cannot be said there.

Native code is optional. setuptools leaves out what could not be built, but not from an editable install
(`tools/setup`), which then fails.
"""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_ext import build_ext


class BuildWhatCanBeBuilt(build_ext):
    """Names only what was built."""

    def get_output_mapping(self) -> dict[str, str]:
        """Returns which file each built one is a copy of."""
        return {
            built: source for built, source in super().get_output_mapping().items() if Path(source).exists()
        }


setup(cmdclass={"build_ext": BuildWhatCanBeBuilt})
