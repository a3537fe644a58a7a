"""What a run can be told: typed, documented dataclasses that the command line, YAML files and Python share."""

import inspect
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypedDict, TypeVar

import yaml

from adaptive_memory_bank.adapters import adapter_names, find_adapter
from adaptive_memory_bank.lab.runs.files import read_yaml, write_text
from adaptive_memory_bank.lab.runs.variants import FRESH, NAMES, NONE

if TYPE_CHECKING:
    AdapterName = str
else:
    AdapterName = Literal[NAMES] | str  # the command line shows the names; `check_adapter` knows the others, too


class BankLayout(TypedDict, total=False):
    """Arguments of `AdaptiveMemoryBank`."""

    gather_distributed: bool
    shard_distributed: bool


@dataclass
class RunConfig:
    """What every task can be told.

    Args:
        preset: Defaults to start from; every other option overrides them.
        data: Dataset name (see `amb datasets`), `folder:PATH` (a folder per class) or `npz:PATH`.
        data_root: Folder with the dataset's files; default: where the dataset's loader looks by itself.
        download: Fetch the dataset if it is missing.
        image_size: Side length of training images in pixels; default: the dataset's usual one, or that of its images
            where they are smaller.
        adapter: How the memory follows the encoder: a name, or `package.module:Class` for one of your own. `none`
            trains without memory, `fresh` re-embeds it.
        adapter_options: Hyper-parameters of the adapter, e.g. `--adapter_options.momentum 0.9`.
        fresh_every: With `--adapter fresh`, re-embed all of the memory every this many steps.
        epochs: Passes over the training set.
        batch_size: Images per step and process; fewer where the data has no more, unless it is given.
        seed: Of weights, sampling and augmentation.
        out: Parent folder of runs.
        run_name: Folder of this run below `out`; default: made from task, data, adapter and seed.
        name: Label of the run in tables and dashboards; default: the adapter.
        resume: Folder of a run to continue; its own options apply, and only those that do not change its numbers can
            be given others (such as `data_root`, `num_workers`, `wandb`, `project`).
        eval_every: Evaluate every this many epochs (and after the last).
        eval_batch_size: Images per evaluation batch.
        log_every: Log the training loss every this many steps.
        checkpoint_every: Write a resumable checkpoint every this many steps, besides every epoch's end; 0: only there.
        drift_every: Measure feature drift every this many steps, and ten times an epoch at least; 1 is the paper's
            figure, 0 turns it off.
        probe_size: Images in the fixed batch that measures drift.
        staleness_rows: Stored rows compared with fresh embeddings every epoch; 0 turns it off.
        num_workers: Loader processes; 0 loads in the training process.
        threads: CPU threads of torch; default: leave as it is.
        accelerator: Lightning's accelerator (`auto`, `cpu`, `gpu`, ...).
        devices: Processes (one per device) of this node.
        num_nodes: Machines.
        memory_layout: How several processes hold the memory: `replicate`, all of it each, or `shard`, a share each.
        precision: Lightning's precision: `32-true`, `16-mixed` or `bf16-mixed`.
        wandb: Weights & Biases: `auto` is online when logged in and offline otherwise.
        project: W&B project.
        entity: W&B team or user.
        group: W&B group; default: data + task.
        tags: W&B tags.
        quiet: Print nothing but errors and the result.
    """

    task: ClassVar[str]
    presets: ClassVar[Mapping[str, dict[str, Any]]]
    # What may differ between a run and its continuation: where it runs and what it is called, not what it computes.
    machine_fields: ClassVar[frozenset[str]] = frozenset(
        {"out", "run_name", "resume", "data_root", "download", "num_workers", "threads", "accelerator", "quiet"}
        | {"memory_layout", "wandb", "project", "entity", "group", "name", "tags"}
    )
    # What is fitted to the data unless it is given.
    fitted_fields: ClassVar[tuple[str, ...]] = ("image_size", "batch_size")

    preset: str = "small"
    data: str = "glyphs"
    data_root: str | None = None
    download: bool = False
    image_size: int | None = None
    adapter: AdapterName = "auto"
    adapter_options: dict[str, Any] = field(default_factory=dict)
    fresh_every: int = 8
    epochs: int = 10
    batch_size: int = 64
    seed: int = 0
    out: str = "runs"
    run_name: str | None = None
    name: str | None = None
    resume: str | None = None
    eval_every: int = 1
    eval_batch_size: int = 256
    log_every: int = 50
    checkpoint_every: int = 500
    drift_every: int = 50
    probe_size: int = 64
    staleness_rows: int = 512
    num_workers: int = 0
    threads: int | None = None
    accelerator: str = "auto"
    devices: int = 1
    num_nodes: int = 1
    memory_layout: Literal["replicate", "shard"] = "replicate"
    precision: Literal["32-true", "16-mixed", "bf16-mixed"] = "32-true"
    wandb: Literal["auto", "online", "offline", "disabled"] = "auto"
    project: str = "adaptive-memory-bank"
    entity: str | None = None
    group: str | None = None
    tags: list[str] = field(default_factory=list)
    quiet: bool = False

    @property
    def processes(self) -> int:
        """Processes of all machines."""
        return self.devices * self.num_nodes

    @property
    def bank_adapter(self) -> str:
        """The adapter of the bank; a memory that is re-embedded is left as it is in between."""
        return "identity" if self.adapter == FRESH.name else self.adapter

    @property
    def bank_layout(self) -> "BankLayout":
        """How the processes hold the memory."""
        if self.processes == 1:
            return {}
        return {"shard_distributed": True} if self.memory_layout == "shard" else {"gather_distributed": True}

    def refuse_shards(self, reason: str) -> None:
        """Complain about a memory in shards that no loss could be compared with."""
        self.require("memory_layout", self.memory_layout != "shard", f"replicate {reason}")

    def check(self) -> None:
        """Check the options that every task has; subclasses add their own.

        Raises:
            ValueError: Naming the option and what it must be.
        """
        _preset(type(self), self.preset)
        names = ("epochs", "batch_size", "fresh_every", "eval_every", "eval_batch_size", "log_every", "devices")
        self.require_positive(*names, "num_nodes", *(("probe_size",) if self.drift_every else ()))
        self.require_positive(*(name for name in ("image_size", "threads") if getattr(self, name) is not None))
        for name in ("checkpoint_every", "drift_every", "staleness_rows", "num_workers"):
            self.require(name, getattr(self, name) >= 0, "zero or a positive integer")
        check_adapter(self.adapter, self.adapter_options)

    def require(self, name: str, holds: bool, must_be: str) -> None:
        """Complain about an option unless something holds."""
        if not holds:
            raise ValueError(f"`{name}` must be {must_be}, got {getattr(self, name)!r}.")

    def require_rates(self, *names: str) -> None:
        """Complain about learning rates that no float32 weight survives."""
        for name in names:
            self.require(name, 0 < getattr(self, name) <= LARGEST_RATE, f"positive and at most {LARGEST_RATE:g}")

    def require_positive(self, *names: str) -> None:
        """Complain about options that are less than 1."""
        for name in names:
            self.require(name, getattr(self, name) >= 1, "a positive integer")


def check_adapter(adapter: str, options: dict[str, Any]) -> None:
    """Check the adapter's name and hyper-parameters."""
    if adapter in (NONE.name, FRESH.name):
        if options:
            raise ValueError(f"`adapter_options` need an adapter, got {options} with `adapter` {adapter}.")
        return
    if adapter not in (*NAMES, *adapter_names()) and ":" not in adapter:
        known = ", ".join(dict.fromkeys((*NAMES, *adapter_names())))
        raise ValueError(f"`adapter` must be one of {known}, or `package.module:Class`, got {adapter!r}.")
    if adapter in NAMES and not options:
        return  # its class imports torch, which takes longer than everything else here
    kind = find_adapter(adapter)
    accepted = list(inspect.signature(kind).parameters)
    unknown = [name for name in options if name not in accepted]
    if unknown:
        takes = f"must be among {', '.join(accepted)}" if accepted else "must be empty"
        raise ValueError(f"`adapter_options` of {adapter} {takes}, got {', '.join(unknown)}.")
    kind(**options)  # its own checks of the values


def check_memory(rows: int, batch_size: int) -> None:
    """A memory must hold what one step brings, of all processes."""
    if rows < batch_size:
        raise ValueError(f"`memory` must hold at least a batch ({batch_size} rows), got {rows} rows.")


Config = TypeVar("Config", bound=RunConfig)
LARGEST_RATE = 1e3
REMEDY = "Delete {} and start the run anew."


def make_config(kind: type[Config], preset: str = "small", **options: Any) -> Config:
    """A configuration that starts from a preset.

    Example:
        >>> from adaptive_memory_bank.lab.training.retrieval.config import RetrievalConfig
        >>> make_config(RetrievalConfig, "paper", epochs=3).model
        'resnet50'
    """
    return kind(**{"preset": preset, **_preset(kind, preset), **options})


def _preset(kind: type[RunConfig], name: str) -> dict[str, Any]:
    if name not in kind.presets:
        raise ValueError(f"`preset` must be one of {', '.join(kind.presets)}, got {name!r}.")
    return kind.presets[name]


def save_config(config: RunConfig, path: Path) -> None:
    """Write a configuration as YAML: the task, then its options."""
    plain = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(config).items()}
    write_text(path, yaml.safe_dump({"task": config.task, **plain}, sort_keys=False))


def read_options(path: Path) -> tuple[str, dict[str, Any]]:
    """The task and the options of a run's `config.yaml`."""
    options = read_yaml(path, remedy=REMEDY.format(path.parent))
    # Runs made before the file named the task: only MoCo has a momentum encoder.
    task = str(options.pop("task", "moco" if "momentum" in options else "retrieval"))
    return task, options


def from_plain(kind: type[Config], options: Mapping[str, Any]) -> Config:
    """A configuration from JSON's values, which know no tuples."""
    tuples = {f.name for f in fields(kind) if isinstance(f.default, tuple)}
    plain: dict[str, Any] = {key: tuple(value) if key in tuples else value for key, value in options.items()}
    return kind(**plain)


def given_options(config: RunConfig) -> frozenset[str]:
    """The options that are not as their preset has them: what was asked for, as far as a configuration can tell."""
    usual = make_config(type(config), config.preset) if config.preset in config.presets else config
    names = (f.name for f in fields(config) if f.name != "preset")  # which may be a default itself
    return frozenset(name for name in names if getattr(config, name) != getattr(usual, name))
