"""The version of xdsprism, written in this one place.

`xdsprism --version`, `xdsprism.__version__` and what clients send as their user agent's version read it here, and the
build reads it for the package's metadata (`[tool.hatch.version]` in pyproject.toml).
"""

__version__ = "0.1.0"
