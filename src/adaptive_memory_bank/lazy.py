"""Names before what they stand for: a module is imported when one of its names is used."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def load_object(path: str) -> Any:
    """What `package.module:name` stands for.

    Example:
        >>> load_object("math:pi")
        3.141592653589793
    """
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` (PEP 562) of a package that imports its names from its modules at first use.

    Args:
        package: `__name__` of the package.
        homes: Names, separated by spaces, by the module below the package that defines them.

    Example:
        >>> lazy_names("collections", {"abc": "Mapping Sequence"})("Sequence").__name__
        'Sequence'
    """
    paths = {name: f"{package}.{home}:{name}" for home, names in homes.items() for name in names.split()}

    def find(name: str) -> Any:
        if name not in paths:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return load_object(paths[name])

    return find
