import pytest
import timm
import torch
import torch.nn.functional as F
from torch import nn

from adaptive_memory_bank.lab.models import encoder as models
from adaptive_memory_bank.lab.models.encoder import EMBEDDING_NORMS, Encoder, MomentumBatchNorm, build_encoder
from adaptive_memory_bank.lab.training.retrieval.config import RetrievalConfig


def test_conv4_is_a_timm_model():
    model = timm.create_model("conv4", in_chans=1, num_classes=5)
    assert model(torch.randn(2, 1, 28, 28)).shape == (2, 5)
    # 3x3x1x64 and three of 3x3x64x64 weights, batch norms of 4 x 2 x 64, a classifier of 64 x 5 + 5.
    assert sum(p.numel() for p in model.parameters()) == 576 + 3 * 36_864 + 512 + 325


def test_conv4_is_the_textbook_network_value_and_gradients():
    """Its ReLU comes after the pool, which must change nothing, to the bit."""
    torch.manual_seed(0)
    model = timm.create_model("conv4", in_chans=1)
    blocks = [nn.Sequential(block[0], block[1], nn.ReLU(), nn.MaxPool2d(2)) for block in model.blocks]
    images, gradients = torch.randn(8, 1, 28, 28), []
    for network in (model, lambda x: nn.Sequential(*blocks)(x).mean((2, 3))):
        rows = network(images)
        gradients.append([rows, *torch.autograd.grad(rows.square().sum(), list(model.parameters()))])
    for ours, textbook in zip(*gradients, strict=True):
        assert torch.equal(ours, textbook)


def test_conv4_has_no_pretrained_weights():
    with pytest.raises(ValueError, match="no pretrained weights for `conv4`"):
        timm.create_model("conv4", pretrained=True)


@pytest.mark.parametrize("model", ["conv4", "resnet10t", "swin_s3_tiny_224"])
@pytest.mark.parametrize("gray", [True, False])
def test_any_backbone_becomes_an_encoder_of_unit_rows(model, gray):
    config = RetrievalConfig(model=model, embedding_dim=12)
    size = 56 if model.startswith("swin") else 32
    encoder = build_encoder(config, gray=gray, image_size=size).eval()
    rows = encoder(torch.randn(2, 1 if gray else 3, size, size))
    assert rows.shape == (2, 12)
    torch.testing.assert_close(rows.norm(dim=1), torch.ones(2))


@pytest.mark.parametrize("norm", EMBEDDING_NORMS)
def test_norms_come_after_unit_length(norm):
    torch.manual_seed(0)
    encoder = Encoder(nn.Flatten(), 16, dim=8, norm=norm)
    images = torch.randn(32, 1, 4, 4)
    unit = F.normalize(encoder.head(images.flatten(1)), dim=1)
    expected = {
        "none": unit,
        "bn": (unit - unit.mean(0)) / (unit.var(0, correction=0) + 1e-5).sqrt(),
        "ln": (unit - unit.mean(1, keepdim=True)) / (unit.var(1, correction=0, keepdim=True) + 1e-5).sqrt(),
        # running moments start at 0 and 1 and count 0.9
        "mbn": (unit - 0.1 * unit.mean(0)) / (0.9 + 0.1 * unit.var(0, correction=0) + 1e-5).sqrt(),
    }[norm]
    torch.testing.assert_close(encoder(images), expected, rtol=1e-4, atol=1e-5)


def test_momentum_batch_norm_follows_a_naive_loop():
    torch.manual_seed(0)
    norm = MomentumBatchNorm(3, momentum=0.8)
    mean, var = torch.zeros(3), torch.ones(3)
    for _ in range(5):
        rows = torch.randn(6, 3) * 2 + 1
        mean = 0.8 * mean + 0.2 * rows.mean(0)
        var = 0.8 * var + 0.2 * rows.var(0, correction=0)
        torch.testing.assert_close(norm(rows), (rows - mean) / (var + 1e-5).sqrt())
    rows = torch.randn(4, 3)
    torch.testing.assert_close(norm.eval()(rows), (rows - mean) / (var + 1e-5).sqrt())


def test_weights_come_from_a_file_with_another_head(tmp_path):
    torch.manual_seed(0)
    source = timm.create_model("resnet10t", num_classes=7)
    torch.save(source.state_dict(), tmp_path / "weights.pth")
    config = RetrievalConfig(model="resnet10t", weights=str(tmp_path / "weights.pth"))
    encoder = build_encoder(config, gray=False, image_size=32)
    assert torch.equal(encoder.backbone.conv1[0].weight, source.conv1[0].weight)


def test_colours_are_normalised_as_the_weights_were_made():
    """TensorFlow's EfficientNets were trained on [-1, 1], timm's ResNets on ImageNet's mean and std."""
    half, imagenet = ((0.5,) * 3, (0.5,) * 3), ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    asked = [("tf_efficientnet_lite0", True), ("resnet50", True), ("tf_efficientnet_lite0", False), ("conv4", False)]
    for (model, pretrained), expected in zip(asked, [half, imagenet, imagenet, imagenet], strict=True):
        assert models.backbone_normalization(RetrievalConfig(model=model, pretrained=pretrained)) == expected
    assert models.backbone_normalization(RetrievalConfig(model="tf_efficientnet_lite0", weights="w.pth")) == half
