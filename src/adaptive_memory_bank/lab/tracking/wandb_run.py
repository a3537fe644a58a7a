"""A run on Weights & Biases, as far as it can be reached; never a prompt."""

import netrc
import os
import secrets
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlparse

import wandb
from pytorch_lightning.loggers import WandbLogger
from pytorch_lightning.utilities import rank_zero_only

from adaptive_memory_bank.lab.tracking.network import check_reachable

PATIENCE = 15.0  # seconds until a server counts as out of reach
INIT_PATIENCE = 20.0  # seconds until W&B counts as out of reach
FINISH_PATIENCE = 120.0  # seconds to let an upload finish
STEP = "trainer/global_step"


def wandb_mode(choice: str) -> str:
    """`online`, `offline` or `disabled`; `auto`: online when logged in, unless `WANDB_MODE` says otherwise."""
    if choice != "auto":
        return choice
    told = os.environ.get("WANDB_MODE", "")
    if told in ("online", "offline", "disabled"):
        return told
    return "online" if is_logged_in() else "offline"


def is_logged_in() -> bool:
    """Whether W&B has a key for this user: in the environment or in `.netrc`. Never asks."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    hosts = {urlparse(wandb.Settings().base_url).hostname, "api.wandb.ai"}
    path = Path(os.environ.get("NETRC", Path.home() / ".netrc"))
    try:
        known = netrc.netrc(str(path))
    except (OSError, netrc.NetrcParseError):
        return False
    return any(known.authenticators(str(host)) for host in hosts)


def check_server(patience: float = PATIENCE) -> str:
    """Return the server's address.

    Raises:
        ValueError: Where nobody is logged in.
        ConnectionError: Where the server does not answer.
    """
    if not is_logged_in():
        raise ValueError("Not logged in to W&B. Run `wandb login`, or set WANDB_API_KEY.")
    address = str(wandb.setup().settings.base_url)
    try:
        check_reachable(address, patience)
    except ConnectionError as error:
        raise ConnectionError(f"W&B at {error}") from error
    return address


def start_wandb(mode: str, *, folder: Path, run_id: str, resume: bool, quiet: bool, **init: Any) -> WandbLogger | None:
    """A W&B run behind Lightning's logger; falls back to offline when the server does not answer."""
    if mode == "disabled" or cast("Any", rank_zero_only).rank != 0:
        return None
    settings = wandb.Settings(
        silent=quiet or mode == "offline",
        console="off",
        init_timeout=INIT_PATIENCE,
        finish_timeout=FINISH_PATIENCE,
        disable_git=True,
        save_code=False,
    )
    # Offline there is nothing to look up: the same id makes both halves one run when they are uploaded.
    arguments = {"dir": str(folder), "id": run_id, "resume": "allow" if resume and mode == "online" else None, **init}
    try:
        run = wandb.init(mode=cast("Any", mode), settings=settings, **arguments)
    except (wandb.errors.CommError, wandb.errors.UsageError, TimeoutError) as error:
        if mode != "online":
            raise
        wandb.teardown()  # its service holds on to the id of the run that did not start
        warnings.warn(f"W&B cannot be reached, the run is kept offline (`amb sync` uploads it): {error}", stacklevel=2)
        return start_wandb("offline", folder=folder, run_id=run_id, resume=resume, quiet=quiet, **init)
    run.define_metric(STEP)
    run.define_metric("*", step_metric=STEP, step_sync=True)
    return WandbLogger(experiment=run, log_model=False)


def finish_wandb(logger: WandbLogger | None, summary: Mapping[str, Any], *, failed: bool) -> None:
    """Write the summary and end the run, so that the process can start another."""
    if logger is None:
        return
    run = cast("Any", logger.experiment)
    run.summary.update({key: value for key, value in summary.items() if value is not None})
    run.finish(exit_code=int(failed))


def new_run_id() -> str:
    """A fresh W&B run id; not from the seeded generators, or runs of equal seeds would be one."""
    return secrets.token_hex(4)
