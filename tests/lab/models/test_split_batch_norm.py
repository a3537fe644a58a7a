"""Our split batch norm is lightly's up to which images share a group."""

import pytest
import timm
import torch
from lightly.models.batchnorm import SplitBatchNorm

from adaptive_memory_bank.lab.models.resnet import Backbone
from adaptive_memory_bank.lab.models.split_batch_norm import NeighbourBatchNorm
from adaptive_memory_bank.lab.training.step import best_memory_format

SPLITS, FEATURES = 4, 6


def pair() -> tuple[NeighbourBatchNorm, SplitBatchNorm]:
    torch.manual_seed(0)
    ours, theirs = NeighbourBatchNorm(FEATURES, SPLITS), SplitBatchNorm(FEATURES, SPLITS)
    torch.nn.init.normal_(theirs.weight)
    torch.nn.init.normal_(theirs.bias)
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def images(seed: int = 1) -> torch.Tensor:
    return torch.randn(4 * SPLITS, FEATURES, 5, 5, generator=torch.Generator().manual_seed(seed)) * 3 + 1


def as_theirs(batch: torch.Tensor) -> torch.Tensor:
    """Put each of our groups, neighbours, where lightly looks for it: every `SPLITS`-th image."""
    return batch.unflatten(0, (SPLITS, -1)).transpose(0, 1).flatten(0, 1)


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_values_gradients_and_running_moments_are_lightlys(memory_format):
    ours, theirs = pair()
    for seed in range(3):
        mine = images(seed).contiguous(memory_format=memory_format).requires_grad_()
        other = images(seed).requires_grad_()
        weights = images(10 + seed)
        result = ours(mine)
        expected = theirs(as_theirs(other).contiguous())
        torch.testing.assert_close(as_theirs(result), expected)
        (result * weights).sum().backward()
        (expected * as_theirs(weights)).sum().backward()
        torch.testing.assert_close(mine.grad, other.grad)
    torch.testing.assert_close(ours.weight.grad, theirs.weight.grad)
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict())
    ours.eval(), theirs.eval()
    torch.testing.assert_close(ours(images()), theirs(images()))


def test_memory_stays_channels_last():
    ours, _ = pair()
    batch = images().contiguous(memory_format=torch.channels_last)
    assert ours(batch).is_contiguous(memory_format=torch.channels_last)
    assert ours.eval()(batch).is_contiguous(memory_format=torch.channels_last)


def test_groups_do_not_see_each_other():
    ours, _ = pair()
    batch = images()
    before = ours(batch)
    batch[-1] += 100
    assert torch.equal(ours(batch)[:-4], before[:-4])
    assert not torch.allclose(ours(batch)[-4:-1], before[-4:-1])


def test_a_batch_that_does_not_split_is_named():
    with pytest.raises(ValueError, match="7 images does not split into 4 equal groups"):
        NeighbourBatchNorm(2, 4)(torch.zeros(7, 2, 3, 3))


def test_every_split_norm_of_a_backbone_is_replaced():
    kinds = {type(part) for part in Backbone("resnet-9", 0.125, 4).modules() if isinstance(part, torch.nn.BatchNorm2d)}
    assert kinds == {NeighbourBatchNorm}
    plain = {type(part) for part in Backbone("resnet-9", 0.125, 0).modules()}
    assert NeighbourBatchNorm not in plain


@pytest.mark.parametrize(
    ("width", "expected"), [(0.0625, torch.contiguous_format), (0.125, torch.channels_last), (1, torch.channels_last)]
)
def test_backbones_train_in_the_memory_format_that_is_safe_for_them(width, expected):
    """Below 8 channels, in channels-last memory, the backward pass of a shortcut would crash or hang (oneDNN, AVX2)."""
    backbone = Backbone("resnet-9", width, 4)
    assert best_memory_format(backbone) == expected
    backbone.to(memory_format=expected)
    backbone(torch.randn(8, 3, 32, 32).contiguous(memory_format=expected)).sum().backward()
    assert all(part.grad is not None and part.grad.isfinite().all() for part in backbone.parameters())


def test_narrow_convolutions_without_a_stride_cost_nothing():
    """Squeeze-and-excitation has such ones; they are safe, so the network keeps the faster format."""
    model = timm.create_model("efficientnet_b0")
    assert min(part.in_channels for part in model.modules() if isinstance(part, torch.nn.Conv2d)) < 8
    assert best_memory_format(model) == torch.channels_last
