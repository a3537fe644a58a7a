"""What stays out of the graphs of `torch.compile`."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import torch

F = TypeVar("F", bound=Callable[..., Any])


def outside_graphs(method: F) -> F:
    """Let a method run as it is where its caller is compiled: a break between two graphs.

    A bank counts its rows and the slot of the next one in Python, and compiled code would be compiled again for every
    new number. Unlike `torch.compiler.disable`, this decorator does not load the compiler where nobody compiles, and
    costs nothing there.
    """

    @wraps(method)
    def run(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return torch.compiler.disable(method)(*args, **kwargs)  # type: ignore[no-untyped-call]
        return method(*args, **kwargs)

    return cast("F", run)
