import pytest

from adaptive_memory_bank.lab.data import available_datasets, load_dataset
from adaptive_memory_bank.lab.data.datasets_table import HEADING, datasets_table
from adaptive_memory_bank.lab.data.registry import SOURCES, default_root, find_source

FILES = ["cifar10", "cifar100", "omniglot", "sop", "inshop", "deepfashion2", "cub200", "cars196"]


def test_every_dataset_is_there():
    assert available_datasets() == ("glyphs", "digits", *FILES, "npz:PATH", "folder:PATH")


@pytest.mark.parametrize("name", FILES)
def test_without_files_each_one_names_itself_its_place_and_a_way(name, tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        load_dataset(name, root=tmp_path)
    message = str(caught.value)
    assert f"`{name}`" in message
    assert str(tmp_path) in message
    assert "http" in message


@pytest.mark.parametrize("name", ["cifar", "npz", "npz:", "sop:somewhere", ""])
def test_unknown_names_list_the_known(name):
    with pytest.raises(ValueError, match=r"`data` must be one of glyphs, digits, .*, folder:PATH, got "):
        load_dataset(name)


def test_download_is_refused_where_nobody_offers_it():
    with pytest.raises(ValueError, match="`download` is only for cifar10, cifar100 and omniglot, got 'sop'"):
        load_dataset("sop", download=True)


def test_the_default_root_is_an_environment_variable(monkeypatch, tmp_path):
    monkeypatch.setenv("AMB_DATA", str(tmp_path))
    assert default_root() == tmp_path
    with pytest.raises(FileNotFoundError, match=str(tmp_path)):
        load_dataset("sop")
    monkeypatch.delenv("AMB_DATA")
    assert str(default_root()) == "data"


@pytest.mark.parametrize("name", SOURCES)
def test_every_source_has_the_name_it_is_registered_under(name):
    assert find_source(name).name == name


@pytest.mark.parametrize("name", ["glyphs", "digits"])
def test_the_table_tells_the_truth_of_what_is_built_in(name):
    data, source = load_dataset(name), find_source(name)
    assert source.images == f"{len(data.train):,} + {len(data.query):,}"
    shared = set(data.train.labels.tolist()) & set(data.query.labels.tolist())
    counts = [data.train.num_classes] + ([] if shared else [data.query.num_classes])
    assert source.classes == " + ".join(f"{count:,}" for count in counts)
    if not shared:
        assert source.metrics == "Recall@" + ",".join(map(str, data.ks))


def test_the_table_has_a_line_per_dataset_and_says_what_is_found(tmp_path):
    (tmp_path / "CUB_200_2011").mkdir()
    (tmp_path / "stanford_cars").mkdir()
    table, *notes = datasets_table(tmp_path).split("\n\n")
    head, rule, *lines = table.splitlines()
    assert head.split("  ")[0].strip() == HEADING[0]
    assert set(rule) == {"-", " "}
    assert [line.split()[0] for line in lines] == list(available_datasets())
    by_name = {line.split()[0]: line for line in lines}
    assert by_name["cub200"].endswith(f"{tmp_path / 'CUB_200_2011'} (found)")
    assert by_name["cars196"].endswith(f"{tmp_path / 'stanford_cars'} (found)")  # another name it goes by
    assert by_name["sop"].endswith("(not there)")
    assert by_name["glyphs"].endswith("built in")
    column = head.index("metrics")
    assert all(line[column - 2 : column] == "  " for line in lines)
    assert [note.partition(":")[0] for note in notes] == ["deepfashion2"]


def test_deepfashion2_is_counted_in_items_and_says_where_the_loader_differs(tmp_path):
    table, note = datasets_table(tmp_path).split("\n\n")
    (line,) = (line for line in table.splitlines() if line.startswith("deepfashion2"))
    for count in ("217,778 items", "12,377 / 36,961", "31,517 + 3,128 / 7,059"):
        assert count in line
    assert "items (boxes)" in note
    assert "perhaps more than the paper" in note
    assert "fewer than 7,059 labels" in note
