"""MoCo with a queue that keeps up with its encoder: one added line in a lightly loop.

Pre-trains a small network on scikit-learn's digits without labels. MoCo's own cure for a stale queue is a key encoder
that hardly moves (momentum 0.99); the faster it may follow, the staler lightly's queue. Staleness is the distance from
the keys in the queue to what the key encoder says of the same views now (0: fresh; unrelated ones: about 1.41).

    python examples/lightly_moco.py [--steps 300]
"""

import argparse
import copy
import time

import torch
import torch.nn.functional as F
from lightly.loss import NTXentLoss
from lightly.models.utils import deactivate_requires_grad, update_momentum
from torch import nn

from adaptive_memory_bank.integrations.lightly import swap_memory_bank
from adaptive_memory_bank.lab.data import load_dataset
from adaptive_memory_bank.metrics import knn_accuracy

DIM, QUEUE, BATCH = 64, 1024, 32


def make_encoder():
    """A backbone and, as its last part, a projection head."""
    layers = []
    for before, after, stride in ((1, 32, 1), (32, 64, 2), (64, 128, 1)):
        layers += [nn.Conv2d(before, after, 3, stride, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
    backbone = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return nn.Sequential(backbone, nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, DIM))


def make_criterion(adaptive):
    criterion = NTXentLoss(temperature=0.1, memory_bank_size=(QUEUE, DIM))
    if adaptive:
        swap_memory_bank(criterion, "auto")  # the one line
    return criterion


def augment(images):
    """Turn, shear and scale every image at random, and add noise."""
    maps = torch.eye(2, 3).repeat(len(images), 1, 1)
    maps[:, :, :2] += 0.1 * torch.randn(len(images), 2, 2)
    moved = F.grid_sample(images, F.affine_grid(maps, list(images.shape), False), align_corners=False)
    return moved + 0.1 * torch.randn_like(moved)


def train(encoder, images, *, adaptive, momentum, steps):
    """An ordinary MoCo loop; `views` remembers what each slot of the queue was made from."""
    criterion = make_criterion(adaptive)
    key_encoder = copy.deepcopy(encoder)
    deactivate_requires_grad(key_encoder)
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=2e-3)
    views, staleness = torch.zeros(QUEUE, *images.shape[1:]), []
    for step in range(steps):
        update_momentum(encoder, key_encoder, m=momentum)
        batch = images[torch.randint(len(images), (BATCH,))]
        for_queries, for_keys = augment(batch), augment(batch)
        views[torch.arange(step * BATCH, (step + 1) * BATCH) % QUEUE] = for_keys
        loss = criterion(encoder(for_queries), key_encoder(for_keys))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 25 == 24 and (step + 1) * BATCH >= QUEUE:
            with torch.no_grad():
                fresh = F.normalize(copy.deepcopy(key_encoder)(views), dim=1)  # a copy: BatchNorm remembers
            staleness.append((criterion.memory_bank.bank - fresh).norm(dim=1).mean().item())
    return sum(staleness) / max(len(staleness), 1)


@torch.no_grad()
def knn(encoder, data):
    """Accuracy of nearest neighbours among the features under the head."""
    backbone = encoder[0].eval()
    features = [backbone(as_tensor(part)) for part in (data.query, data.train)]
    return knn_accuracy(features[0], data.query.labels, features[1], data.train.labels, num_classes=10, k=20)


def as_tensor(part):
    return torch.from_numpy(part.images)[:, None] / 255


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    arguments = parser.parse_args()

    data = load_dataset("digits")
    images = as_tensor(data.train)
    torch.manual_seed(0)
    untrained = make_encoder()
    print(f"{len(images)} digits without labels; kNN of the untrained encoder: {knn(untrained, data):.3f}")
    print("momentum   queue       kNN   staleness   seconds")
    for momentum in (0.99, 0.9, 0.5):
        for adaptive in (False, True):
            torch.manual_seed(0)
            encoder, start = make_encoder(), time.perf_counter()
            stale = train(encoder, images, adaptive=adaptive, momentum=momentum, steps=arguments.steps)
            name, seconds = "adaptive" if adaptive else "lightly", time.perf_counter() - start
            print(f"{momentum:8}   {name:8} {knn(encoder, data):6.3f}   {stale:9.3f}   {seconds:7.1f}", flush=True)


if __name__ == "__main__":
    main()
