import numpy as np
import torch
from torch import nn

from adaptive_memory_bank.lab.data import Part
from adaptive_memory_bank.lab.data.transforms import Plain
from adaptive_memory_bank.lab.training.scores import (
    embed_part,
    evaluating,
    gather_interleaved,
    retrieval_scores,
    summary,
)


def part_of(count):
    images = np.arange(count, dtype=np.uint8)[:, None, None].repeat(8, 1).repeat(8, 2)
    return Part(images, torch.arange(count) // 2, class_names=tuple("abcdefgh"))


def brightness(images):
    return (images.mean((2, 3)) * 0.5 + 0.5) * 255


def test_rows_come_in_the_order_of_the_part_whatever_the_batch_size():
    for batch_size in (1, 4, 100):
        rows = embed_part(brightness, part_of(7), Plain(8), batch_size=batch_size, device=torch.device("cpu"))
        torch.testing.assert_close(rows, torch.arange(7.0)[:, None], atol=1e-4, rtol=0)


def test_evaluation_mode_ends_where_it_began_part_by_part():
    model = nn.Sequential(nn.BatchNorm1d(2), nn.Dropout())
    model[0].eval()  # a frozen part
    with evaluating(model):
        assert not any(module.training for module in model.modules())
    assert (model.training, model[0].training, model[1].training) == (True, False, True)


def test_only_the_ks_that_a_set_is_large_enough_for_are_scored():
    rows = torch.eye(4)[torch.tensor([0, 0, 1, 1])]
    part = part_of(4)
    scores = summary(retrieval_scores(rows, part, None, None), (1, 3, 100), "val")
    assert scores["val/recall@1"] == scores["val/recall@3"] == 1.0
    assert "val/recall@100" not in scores


def test_alone_there_is_nothing_to_gather():
    rows = torch.randn(3, 2)
    assert gather_interleaved(rows, 3) is rows
