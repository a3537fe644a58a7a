"""Which models and losses there are, read from the sources of the packages: importing those takes seconds."""

import difflib
import re
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

RESNETS = ("resnet-9", "resnet-18", "resnet-34", "resnet-50", "resnet-101", "resnet-152")
"""Of lightly, for MoCo."""
_MODEL = re.compile(r"^@register_model\s+def (\w+)\(", re.MULTILINE)
_OLD_NAMES = re.compile(r"register_model_deprecations\(__name__, \{(.*?)\}\)", re.DOTALL)


def check_model(name: str) -> None:
    """Raise for a backbone that is neither ours nor timm's, with the nearest names.

    Raises:
        ValueError: Naming models that there are.
    """
    timm = sys.modules.get("timm")  # knows models that were registered since
    if name.partition(".")[0] in timm_models() or (timm is not None and timm.is_model(name)):
        return
    near = difflib.get_close_matches(name, timm_models(), n=5, cutoff=0.5)
    hint = f" Did you mean {', '.join(near)}?" if near else ""
    raise ValueError(
        f"`model` must be `conv4` or a timm model ({len(timm_models())} names, `timm.list_models()`), "
        f"got {name!r}.{hint}"
    )


@cache
def timm_models() -> tuple[str, ...]:
    """Names of backbones: timm's, old ones included, and `conv4`."""
    files = [Path(__file__).with_name("conv4.py"), *sorted(_folder("timm/models").glob("*.py"))]
    text = "\n".join(map(_source, files))
    old = re.findall(r"['\"](\w+)['\"]\s*:", "\n".join(_OLD_NAMES.findall(text)))
    return tuple(dict.fromkeys([*_MODEL.findall(text), *old]))


@cache
def pml_losses() -> tuple[str, ...]:
    """Names of pytorch-metric-learning's losses."""
    text = _source(_folder("pytorch_metric_learning/losses") / "__init__.py")
    return tuple(sorted({name for name in re.findall(r"\b[A-Z]\w*Loss\b", text) if not name.startswith("Base")}))


def _folder(path: str) -> Path:
    """A folder of an installed package, which is not imported."""
    package, _, inner = path.partition("/")
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)
    return Path(spec.origin).parent / inner


def _source(path: Path) -> str:
    return path.read_text(encoding="utf-8")
