"""Only what pyproject.toml cannot say: a build starts from nothing."""

import shutil

from setuptools import setup
from setuptools.command.build_py import build_py


class FreshBuild(build_py):
    """Copies the modules into an empty folder: a leftover of an earlier build would become part of the package.

    Plugins are found by their folders, so that a renamed environment would stay registered under its old name.
    """

    def run(self) -> None:
        """Build."""
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


setup(cmdclass={"build_py": FreshBuild})
