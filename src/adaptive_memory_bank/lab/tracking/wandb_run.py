"""A run on Weights & Biases, as far as it can be reached; never a prompt."""

import netrc
import os
import secrets
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlparse

import wandb
from pytorch_lightning.loggers.logger import Logger
from pytorch_lightning.utilities import rank_zero_only

from adaptive_memory_bank.lab.tracking.network import check_reachable, within

PATIENCE = 15.0  # seconds until a server counts as out of reach
INIT_PATIENCE = 20.0  # seconds until W&B counts as out of reach
FINISH_PATIENCE = 120.0  # seconds to let an upload finish
STEP = "trainer/global_step"
HOMES = ("WANDB_DATA_DIR", "WANDB_CACHE_DIR")


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
    try:
        hosts = {urlparse(wandb.Settings().base_url).hostname, "api.wandb.ai"}
        known = netrc.netrc(os.environ.get("NETRC") or str(Path.home() / ".netrc"))
    except (OSError, netrc.NetrcParseError, RuntimeError, ValueError):  # no such file, no home, settings that are none
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


class WandbRun(Logger):
    """A run on W&B, as Lightning's logger, that cannot fail a training: the first error is a warning and ends it.

    Args:
        run: What `wandb.init` returned.
        folder: The run's folder; W&B's own files are below it.
    """

    name, version = "wandb", "0"

    def __init__(self, run: Any, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self._run, self._failed = run, False

    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        """W&B has them since the run was started."""

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Send metrics of a step."""
        if not self._failed:
            self._attempt("logging", lambda run: run.log({**metrics, STEP: step}))

    def log_table(self, name: str, make: Callable[[], tuple[list[Any], list[list[Any]]]]) -> None:
        """Send a table, made of columns and rows."""

        def send(run: Any) -> None:
            columns, rows = make()
            run.log({name: wandb.Table(columns=columns, data=rows)})

        if not self._failed:
            self._attempt("logging a table", send)

    def end(self, summary: Mapping[str, Any], *, failed: bool) -> None:
        """Write the summary and end the run, so that the process can start another."""

        def finish(run: Any) -> None:
            run.summary.update({key: value for key, value in summary.items() if value is not None})
            patience = FINISH_PATIENCE + PATIENCE  # W&B gives up first, unless its own service hangs
            within(patience, lambda: run.finish(exit_code=int(failed)), doing="waiting for W&B")

        self._attempt("ending the run", finish)
        if self._failed:  # its service may be gone, and would be asked once more when the process ends
            with suppress(Exception):
                within(PATIENCE, wandb.teardown, doing="waiting for W&B")

    def _attempt(self, doing: str, task: Callable[[Any], None]) -> None:
        try:
            with _files_in(self.folder):
                task(self._run)
        except Exception as error:  # of many kinds: its service, its disk, its server
            if not self._failed:
                _warn(f"W&B failed while {doing}", self.folder, error)
            self._failed = True


def _warn(what: str, folder: Path, error: BaseException) -> None:
    said = " ".join(str(error).split()) or type(error).__name__
    kept = f"The training goes on without it; its own files in {folder} are complete"
    warnings.warn(f"{what}: {said} {kept}, and `wandb sync` may upload what is below {folder / 'wandb'}.", stacklevel=3)


def start_wandb(mode: str, *, folder: Path, run_id: str, resume: bool, quiet: bool, **init: Any) -> WandbRun | None:
    """A run on W&B; kept offline where the server does not answer, and None, with a warning, where W&B cannot start."""
    if mode == "disabled" or cast("Any", rank_zero_only).rank != 0:
        return None
    # Offline there is nothing to look up: the same id makes both halves one run when they are uploaded.
    arguments = {"dir": str(folder), "id": run_id, "resume": "allow" if resume and mode == "online" else None, **init}
    try:
        with _files_in(folder):
            run = wandb.init(mode=cast("Any", mode), settings=_settings(mode, quiet), **arguments)
        run.define_metric(STEP)
        run.define_metric("*", step_metric=STEP, step_sync=True)
        return WandbRun(run, folder)
    except Exception as error:
        with suppress(Exception):
            wandb.teardown()  # its service holds on to the id of the run that did not start
        if mode != "online":
            _warn("W&B cannot be started", folder, error)
            return None
        warnings.warn(f"W&B cannot be reached, the run is kept offline (`amb sync` uploads it): {error}", stacklevel=2)
        return start_wandb("offline", folder=folder, run_id=run_id, resume=resume, quiet=quiet, **init)


@contextmanager
def _files_in(folder: Path) -> Iterator[None]:
    """Have W&B stage and cache files beside the run that they belong to, and not in a home that may be read-only."""
    ours = [name for name in HOMES if name not in os.environ]
    os.environ.update(dict.fromkeys(ours, str(folder / "wandb")))
    try:
        yield
    finally:
        for name in ours:
            del os.environ[name]


def _settings(mode: str, quiet: bool) -> wandb.Settings:
    return wandb.Settings(
        silent=quiet or mode == "offline",
        console="off",
        init_timeout=INIT_PATIENCE,
        finish_timeout=FINISH_PATIENCE,
        finish_timeout_raises=True,
        disable_git=True,
        save_code=False,
    )


def new_run_id() -> str:
    """A fresh W&B run id; not from the seeded generators, or runs of equal seeds would be one."""
    return secrets.token_hex(4)
