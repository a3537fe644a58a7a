"""Cross-batch memory that keeps up with its encoder: one changed import in a pytorch-metric-learning loop.

Trains a small network on drawn characters three times: without a memory, with PML's memory, with an adaptive one. The
test characters are of alphabets it never saw. Staleness is the distance from what a memory holds to what the encoder
says of the same images now (0: fresh; unrelated unit vectors are about 1.41 apart), for the rows as they were stored
and as the memory serves them.

    python examples/pml_cross_batch_memory.py [--steps 300] [--seeds 2]
"""

import argparse
import time
from itertools import pairwise

import torch
import torch.nn.functional as F
from pytorch_metric_learning import losses
from torch import nn

from adaptive_memory_bank.integrations.pml import CrossBatchMemory  # instead of: losses.CrossBatchMemory
from adaptive_memory_bank.lab.data import PKSampler
from adaptive_memory_bank.lab.data.sources.glyphs import glyphs
from adaptive_memory_bank.metrics import retrieval_metrics

DIM, MEMORY = 64, 1024


def make_encoder():
    widths, layers = (1, 32, 64), []
    for before, after in pairwise(widths):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.GroupNorm(8, after), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 3 * 3, DIM))


def make_criteria():
    return {
        "no memory": lambda: losses.SupConLoss(),
        "PML's memory": lambda: losses.CrossBatchMemory(losses.SupConLoss(), DIM, MEMORY),
        "adaptive memory": lambda: CrossBatchMemory(losses.SupConLoss(), DIM, MEMORY, adapter="auto"),
    }


def as_tensor(part):
    return F.avg_pool2d(torch.from_numpy(part.images)[:, None] / 255, 2)  # 14 x 14 will do


@torch.no_grad()
def embed(encoder, images):
    return torch.cat([F.normalize(encoder(part), dim=1) for part in images.split(500)])


def train(criterion, images, labels, *, steps, seed):
    """An ordinary loop; `sources` remembers which image each slot of the memory came from."""
    torch.manual_seed(seed)
    encoder = make_encoder()
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=2e-3)
    sampler = PKSampler(labels, classes_per_batch=8, images_per_class=2, seed=seed)
    batches = [batch for epoch in range(steps // len(sampler) + 1) for batch in epoch_of(sampler, epoch)][:steps]
    sources, stored, staleness = torch.zeros(MEMORY, dtype=torch.int64), torch.zeros(MEMORY, DIM), []
    for step, batch in enumerate(batches):
        embeddings = encoder(images[batch])
        loss = criterion(embeddings, labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if isinstance(criterion, losses.CrossBatchMemory):
            slots = criterion.curr_batch_idx
            sources[slots], stored[slots] = torch.tensor(batch), embeddings.detach()
            if step % 20 == 19 and criterion.has_been_filled:
                fresh = embed(encoder, images[sources])
                staleness.append([distance(rows, fresh) for rows in (stored, criterion.embedding_memory)])
    return encoder, staleness


def distance(rows, fresh):
    return (F.normalize(rows, dim=1) - fresh).norm(dim=1).mean().item()


def epoch_of(sampler, epoch):
    sampler.set_epoch(epoch)
    return list(sampler)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=2)
    arguments = parser.parse_args()

    data = glyphs(train_classes=150, test_classes=60, images_per_class=10)
    train_images, test_images = (as_tensor(part) for part in (data.train, data.query))
    print(f"{len(train_images)} images of 150 characters to train, {len(test_images)} of 60 others to test")
    print(f"{'':16} recall@1   staleness: stored  served   seconds")
    for name, make in make_criteria().items():
        recalls, stale, start = [], [], time.perf_counter()
        for seed in range(arguments.seeds):
            encoder, staleness = train(make(), train_images, data.train.labels, steps=arguments.steps, seed=seed)
            scores = retrieval_metrics(embed(encoder, test_images), data.query.labels, ks=(1,))
            recalls.append(scores["recall@1"])
            stale += staleness
        shown = "{:6.3f}  {:6.3f}".format(*torch.tensor(stale).mean(0)) if stale else f"{'-':>6}  {'-':>6}"
        recall = sum(recalls) / len(recalls)
        print(f"{name:16} {recall:8.3f}              {shown}   {time.perf_counter() - start:7.1f}", flush=True)


if __name__ == "__main__":
    main()
