"""Two encoders that learn from each other, such as images and texts, or queries and passages, with a bank each.

Every pair is compared with the other pairs of its batch and with the keys that the banks remember, in both directions.
Here the "image" and the "text" of an item are two noisy views of one hidden vector, through different random maps.

    python examples/recipes/two_encoders.py [--steps 200]
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

from adaptive_memory_bank import AdaptiveMemoryBank
from adaptive_memory_bank.losses import MemoryInfoNCELoss

ITEMS, HIDDEN, DIM, BATCH = 2000, 16, 32, 32


def make_data():
    """Images (ITEMS, 64) and texts (ITEMS, 48) of the same items."""
    hidden = torch.randn(ITEMS, HIDDEN)
    return [torch.tanh(hidden @ torch.randn(HIDDEN, width)) + 0.3 * torch.randn(ITEMS, width) for width in (64, 48)]


def make_encoder(width):
    return nn.Sequential(nn.Linear(width, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, DIM))


def make_loss(size):
    """The queries of one encoder against a bank of the other's keys, whose gradient both encoders get."""
    return MemoryInfoNCELoss(AdaptiveMemoryBank(size, DIM), temperature=0.1, batch_negatives=True)


def train(encoders, images, texts, steps):
    encode_image, encode_text = encoders
    to_text, to_image = make_loss(size=256), make_loss(size=256)  # a bank of texts, and one of images
    optimizer = torch.optim.AdamW(encoders.parameters(), lr=3e-3)
    for _ in range(steps):
        ids = torch.randint(len(images), (BATCH,))  # an item may come twice: its rows are no negatives of each other
        image, text = encode_image(images[ids]), encode_text(texts[ids])
        loss = 0.5 * (to_text(image, text, ids) + to_image(text, image, ids))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return to_text.bank, to_image.bank


@torch.no_grad()
def recall(encoders, images, texts):
    """Share of images whose own text is the nearest."""
    encode_image, encode_text = encoders.eval()
    image, text = F.normalize(encode_image(images), dim=1), F.normalize(encode_text(texts), dim=1)
    return ((image @ text.T).argmax(1) == torch.arange(len(images))).float().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    images, texts = make_data()
    encoders = nn.ModuleList([make_encoder(64), make_encoder(48)])
    print(f"Recall@1 of unseen pairs, untrained: {recall(encoders, images[1500:], texts[1500:]):.3f}")
    banks = train(encoders.train(), images[:1500], texts[:1500], arguments.steps)
    print(f"Recall@1 of unseen pairs, trained:   {recall(encoders, images[1500:], texts[1500:]):.3f}")
    for name, stats in (("texts", banks[0].stats()), ("images", banks[1].stats())):
        print(f"bank of {name}: mean age {stats['age']:.1f} steps, believed {stats['gain_mean']:.2f} of the last batch")


if __name__ == "__main__":
    main()
