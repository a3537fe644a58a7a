"""What the paper's tables would cost: counted work times counted images, and nothing that was measured on a GPU."""

import measure
import paper_cost
import pytest

from adaptive_memory_bank.lab.data.registry import find_source
from adaptive_memory_bank.lab.runs.config import make_config
from adaptive_memory_bank.lab.training.moco.config import MocoConfig
from adaptive_memory_bank.lab.training.retrieval.config import RetrievalConfig

UNWATCHED = {"drift_every": 0, "eval_every": 10}


@pytest.mark.parametrize("model", paper_cost.BACKBONES)
def test_the_file_holds_what_counting_gives(model):
    assert paper_cost.work(model) == pytest.approx(measure.read(paper_cost.NAME)["work"][model], rel=0.01)


def test_a_resnet_50_has_the_known_size():
    """25.6 million weights without the 2.05 million of the classifier; 4.1 billion multiply-adds."""
    known = measure.read(paper_cost.NAME)["work"]["resnet50"]
    assert known["parameters"] == 25_557_032 - 2_049_000
    assert known["flops"] / 2 == pytest.approx(4.1e9, rel=0.01)


def test_passes_are_three_for_training_one_for_the_head_s_warm_up_and_four_for_moco():
    retrieval = make_config(RetrievalConfig, data="inshop", epochs=10, warmup_epochs=2, **UNWATCHED)
    assert paper_cost.forward_passes(retrieval) == 25_882 * (8 * 3 + 2) + 14_218 + 12_612
    moco = make_config(MocoConfig, data="cifar10", epochs=10, **UNWATCHED)
    assert paper_cost.forward_passes(moco) == 50_000 * 40 + 60_000
    watched = make_config(MocoConfig, data="cifar10", epochs=10, batch_size=100, drift_every=5, probe_size=64)
    assert paper_cost.forward_passes(watched) - 50_000 * 40 - 10 * 60_000 == 5000 / 5 * 64


def test_memory_is_activations_weights_bank_and_logits():
    options = {"data": "sop", "model": "resnet50", "memory": 1000, "embedding_dim": 512, "batch_size": 64}
    known = {"resnet50": {"bytes": 10.0, "parameters": 100}}
    here = make_config(RetrievalConfig, adapter="xbn", **options)
    assert paper_cost.gpu_bytes(here, known) == 640 + 1600 + 1000 * (2048 + 8) + 8 * 1000 * 64
    none = make_config(RetrievalConfig, adapter="none", precision="16-mixed", **options)
    assert paper_cost.gpu_bytes(none, known) == 320 + 1600


def test_images_are_those_of_the_data_sets():
    for name, (train, evaluated) in paper_cost.IMAGES.items():
        said = [int(word.replace(",", "")) for word in find_source(name).images.split() if word[0].isdigit()]
        if name == "deepfashion2":  # all items, then the queries and the gallery among them
            assert (train, evaluated) == (said[0] - said[1] - said[2], said[1] + said[2])
        else:
            extra = train if name.startswith("cifar") else 0  # kNN votes among the training images
            assert (train, evaluated - extra) == (said[0], sum(said[1:]))


def test_every_file_has_its_command():
    text = paper_cost.show()
    for path in paper_cost.PAPER.glob("*.yaml"):
        assert f"amb compare --config benchmarks/paper/{path.name} " in text
