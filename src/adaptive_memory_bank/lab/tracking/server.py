"""The W&B server: never prompts for a login, never waits forever."""

import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

PATIENCE = 15.0  # seconds until a server counts as out of reach


def check_server(patience: float = PATIENCE) -> str:
    """Return the server's address.

    Raises:
        ValueError: Where nobody is logged in.
        ConnectionError: Where the server does not answer.
    """
    import wandb

    from adaptive_memory_bank.lab.tracking.wandb_run import is_logged_in

    if not is_logged_in():
        raise ValueError("Not logged in to W&B. Run `wandb login`, or set WANDB_API_KEY.")
    address = str(wandb.setup().settings.base_url)
    within(patience, lambda: _ask(address, patience), doing=f"reaching W&B at {address}")
    return address


def _ask(address: str, patience: float) -> None:
    try:
        urllib.request.urlopen(urllib.request.Request(address, method="HEAD"), timeout=patience).close()
    except urllib.error.HTTPError:
        return  # an error page is an answer
    except (OSError, ValueError) as error:
        raise ConnectionError(f"W&B at {address} cannot be reached: {error}") from error


def within(seconds: float, task: Callable[[], Any], *, doing: str) -> None:
    """Call a function, and give up after so many seconds.

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
