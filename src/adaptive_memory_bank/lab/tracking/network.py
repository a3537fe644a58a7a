"""Asks servers, and gives up in time."""

import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any


def check_reachable(address: str, patience: float) -> None:
    """Raise unless something answers at an address, error pages included.

    Raises:
        ConnectionError: Saying why, within `patience` seconds.
    """
    try:
        within(patience, lambda: _ask(address, patience), doing="asking")
    except (OSError, ValueError) as error:
        raise ConnectionError(f"{address} cannot be reached: {error}") from error


def _ask(address: str, patience: float) -> None:
    try:
        urllib.request.urlopen(urllib.request.Request(address, method="HEAD"), timeout=patience).close()
    except urllib.error.HTTPError:
        return  # an error page is an answer


def within(seconds: float, task: Callable[[], Any], *, doing: str) -> None:
    """Do something in at most so many seconds.

    Raises:
        ConnectionError: After that time. (Name resolution and retries of others know no time limit of their own.)
    """
    errors: list[BaseException] = []

    def attempt() -> None:
        try:
            task()
        except BaseException as error:  # handed to the caller below
            errors.append(error)

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise ConnectionError(f"Gave up {doing} after {seconds:g} seconds.")
    if errors:
        raise errors[0]
