import pytest
import torch
from torchvision.transforms.v2 import functional as theirs

from adaptive_memory_bank.lab.data import colour


def images():
    batch = torch.rand(5, 3, 6, 6, generator=torch.Generator().manual_seed(0))
    batch[0] = batch[0, :1]  # gray: has no hue
    batch[1] = 0
    batch[2, :, :3] = 1
    return batch


@pytest.mark.parametrize("name", ["brightness", "contrast", "saturation"])
def test_equals_torchvision_one_by_one(name):
    amounts = torch.tensor([-0.4, 0.4, 0.1, -0.2, 0.0])
    ours = getattr(colour, name)(images(), amounts)
    for image, amount, result in zip(images(), amounts.tolist(), ours, strict=True):
        expected = getattr(theirs, f"adjust_{name}")(image, 1 + amount)
        torch.testing.assert_close(result, expected, atol=2e-4, rtol=0)  # luma weights have four digits


@pytest.mark.parametrize("amount", [-0.5, -0.1, 0.0, 0.07, 0.5])
def test_hue_equals_torchvision(amount):
    ours = colour.hue(images(), torch.full((5,), amount))
    expected = torch.stack([theirs.adjust_hue(image, amount) for image in images()])
    torch.testing.assert_close(ours, expected, atol=1e-5, rtol=0)


def test_a_third_of_a_turn_makes_red_green():
    red = torch.tensor([1.0, 0.0, 0.0]).view(1, 3, 1, 1)
    torch.testing.assert_close(colour.hue(red, torch.tensor([1 / 3])).flatten(), torch.tensor([0.0, 1.0, 0.0]))


def test_gray_equals_torchvision():
    torch.testing.assert_close(colour.gray(images()), theirs.rgb_to_grayscale(images()), atol=2e-4, rtol=0)
