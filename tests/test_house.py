"""The house is built as drawn: which package may import which, and who knows how rows are stored."""

import sys
from pathlib import Path

import pytest
import torch

import adaptive_memory_bank
from adaptive_memory_bank.ring import LazyRing
from import_graph import Import, attributes_read, between_rooms, cycle, foreign, read_imports, undeclared

HOUSE = Path(adaptive_memory_bank.__file__).parent

# Each room, and the rooms it may import from. A new module of the library needs a line here.
LIBRARY = {
    "lazy": "",
    "version": "",
    "precision": "",
    "masks": "",
    "graphs": "",
    "moments": "masks",
    "checks": "",
    "distributed": "",
    "metrics": "",
    "affine": "moments precision",
    "running": "masks",
    "ring": "affine masks moments precision running",
    "adapters": "lazy masks moments precision",
    "batch": "distributed masks",
    "shards": "batch distributed moments ring",
    "stats": "affine moments",
    "stateful": "adapters checks ring shards stats",
    "bank": "adapters batch checks distributed graphs moments ring shards stateful stats",
    "diagnostics": "bank",
    "losses": "bank checks distributed graphs masks ring",
    "integrations": "adapters bank batch checks distributed graphs losses masks",
}
LAB = {
    "lab.data": "",
    "lab.runs": "",
    "lab.models": "",
    "lab.tracking": "lab.runs",
    "lab.training": "lab.data lab.models lab.runs lab.tracking",
    "lab.compare": "lab.data lab.runs lab.training",
    "lab.commands": "lab.compare lab.data lab.models lab.runs lab.tracking lab.training",
}


def full(name):
    return f"adaptive_memory_bank.{name}"


def allowed_imports():
    allowed = {
        "adaptive_memory_bank": set(map(full, ("adapters", "bank", "lazy", "moments", "version"))),
        full("lab"): set(),
    }
    allowed |= {full(room): {full(other) for other in others.split()} for room, others in LIBRARY.items()}
    for room, others in LAB.items():
        allowed[full(room)] = {full(other) for other in (*others.split(), *LIBRARY)}
    return allowed


IMPORTS = read_imports(HOUSE)


def test_rooms_import_only_from_the_rooms_declared():
    assert list(map(str, undeclared(IMPORTS, allowed_imports()))) == []


def test_every_room_declared_is_there_and_nothing_is_allowed_that_the_library_does_not_do():
    paths = [HOUSE / room.replace(".", "/") for room in (*LIBRARY, *LAB)]
    assert [path.name for path in paths if not (path.is_dir() or path.with_suffix(".py").exists())] == []
    crossing = between_rooms(IMPORTS, set(allowed_imports()))
    declared = {(full(room), full(other)) for room, others in LIBRARY.items() for other in others.split()}
    assert declared - set(crossing) == set()


def test_the_declared_order_has_no_cycle():
    assert cycle(allowed_imports()) is None


def test_the_library_needs_torch_alone_and_only_integrations_and_lab_know_more():
    optional = "tqdm"  # imported when a progress bar is asked for, and done without where it is missing
    native = {*sys.stdlib_module_names, "torch", "adaptive_memory_bank", optional}
    assert list(map(str, foreign(IMPORTS, native, {full("integrations"), full("lab")}))) == []


def test_only_the_ring_and_its_map_know_how_rows_are_stored():
    secrets = set(LazyRing(2, 2, torch.float32).state_dict()) - {"_extra_state", "map._extra_state"}
    secrets = {name.rpartition(".")[2] for name in secrets}
    assert secrets == {"stored", "stored_labels", "is_gap", "stored_mean", "stored_m2", "scale", "shift"}
    library = [file for file in HOUSE.rglob("*.py") if file.relative_to(HOUSE).parts[0] != "lab"]
    told = {file.name: attributes_read(file) & secrets for file in library if file.name not in ("ring.py", "affine.py")}
    assert {name: found for name, found in told.items() if found} == {}
    assert attributes_read(HOUSE / "ring.py") & secrets == secrets - {"scale", "shift"}


def test_the_lab_and_the_integrations_ask_the_bank_and_never_its_ring():
    files = [*(HOUSE / "lab").rglob("*.py"), *(HOUSE / "integrations").rglob("*.py")]
    assert [file.name for file in files if "ring" in attributes_read(file)] == []


@pytest.fixture
def made_up(tmp_path):
    """A house of two floors with everything in it that must be found."""
    sources = {
        "__init__": "from house.bank import Bank",
        "bank": "import torch\nfrom house import ring",
        "ring": "def write():\n    from house.lab.train import step",
        "losses/__init__": "from .walk import walk",
        "losses/walk": "import lightly.loss\nif TYPE_CHECKING:\n    from ..bank import Bank",
        "lab/__init__": "",
        "lab/train": "import lightly\nfrom house.losses import walk",
    }
    for name, text in sources.items():
        file = tmp_path / "house" / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return read_imports(tmp_path / "house")


def test_imports_are_found_at_the_top_in_functions_for_types_and_relative(made_up):
    assert {each for each in made_up if each.imported.startswith("house")} == {
        Import("house", "house.bank"),
        Import("house.bank", "house.ring"),
        Import("house.ring", "house.lab.train"),
        Import("house.losses", "house.losses.walk"),
        Import("house.losses.walk", "house.bank"),
        Import("house.lab.train", "house.losses.walk"),
    }


def test_an_upward_import_and_an_undeclared_one_are_found(made_up):
    allowed = {
        "house": {"house.bank"},
        "house.bank": {"house.ring"},
        "house.ring": set(),
        "house.losses": set(),
        "house.lab": {"house.losses"},
    }
    assert list(map(str, undeclared(made_up, allowed))) == [
        "house.losses.walk -> house.bank",
        "house.ring -> house.lab.train",
    ]


def test_a_cycle_is_found_and_a_diamond_is_none():
    assert cycle({"a": {"b", "c"}, "b": {"d"}, "c": {"d"}, "d": set()}) is None
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"d"}, "d": {"b"}}) == ["b", "c", "d", "b"]


def test_a_foreign_library_is_found_outside_the_rooms_that_may_use_it(made_up):
    lightly = Import("house.losses.walk", "lightly.loss"), Import("house.lab.train", "lightly")
    assert foreign(made_up, {"house", "torch"}, {"house.lab"}) == [lightly[0]]
    assert set(foreign(made_up, {"house", "torch"}, {"house.bank"})) == set(lightly)
