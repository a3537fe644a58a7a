"""Equality of nested plain data, such as checkpoints, to the bit."""

from typing import Any

import torch


def assert_same(first: Any, second: Any, where: str = "") -> None:
    """Equal to the bit, all the way down."""
    if isinstance(first, torch.Tensor):
        assert torch.equal(first, second), where
    elif isinstance(first, dict):
        assert first.keys() == second.keys(), where
        for key in first:
            assert_same(first[key], second[key], f"{where}/{key}")
    elif isinstance(first, list | tuple):
        assert len(first) == len(second), where
        for number, pair in enumerate(zip(first, second, strict=True)):
            assert_same(*pair, f"{where}/{number}")
    else:
        assert first == second, where
