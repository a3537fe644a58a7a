"""The version, for the package, its build and its command."""

__version__ = "0.1.0"
