"""Drawn characters: the dataset that needs no download and still needs learning.

Like Omniglot: many classes, few images each, test classes that training never saw. A class is a character of a few
cubic Bezier strokes; an image is that character by a writer of its own: every control point, the pen's width, slant,
size and place differ. Characters of one alphabet are put together from the same few strokes, so that neighbours
differ by one stroke and raw pixels do not tell them apart.
"""

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from adaptive_memory_bank.checks import check_positive_integer
from adaptive_memory_bank.lab.data.parts import Part, RetrievalData
from adaptive_memory_bank.lab.data.source import Source, recall

TRAIN_CLASSES, TEST_CLASSES, IMAGES_PER_CLASS, SIDE = 300, 150, 20, 28
_ALPHABET = 15  # characters per alphabet; train and test have alphabets of their own
_POOL, _STROKES = 7, 3  # strokes an alphabet knows, strokes in a character
_POINTS = 24  # per stroke: where the pen is sampled
_WOBBLE = 0.04  # of the control points: a writer's hand, in units of half the image
_TILT, _SHIFT, _SMALL = 0.24, 0.11, 0.65  # of the page: angle and shear, place, least size
_CHUNK = 1024
KS = (1, 10, 100)

_Array = np.ndarray[Any, Any]


def glyphs(
    *,
    train_classes: int = TRAIN_CLASSES,
    test_classes: int = TEST_CLASSES,
    images_per_class: int = IMAGES_PER_CLASS,
    seed: int = 0,
) -> RetrievalData:
    """Draw the dataset; equal seeds draw equal images.

    Args:
        train_classes: Characters to train on.
        test_classes: Other characters, of other alphabets, that search each other.
        images_per_class: Writers.
        seed: Of everything.

    Example:
        >>> data = glyphs(train_classes=4, test_classes=2, images_per_class=3)
        >>> data.train.images.shape, data.query.num_classes
        ((12, 28, 28), 2)
    """
    check_positive_integer("train_classes", train_classes)
    check_positive_integer("test_classes", test_classes)
    check_positive_integer("images_per_class", images_per_class)
    random = np.random.Generator(np.random.PCG64([seed % 2**64]))
    names = tuple(f"glyph {i}" for i in range(train_classes + test_classes))
    parts = []
    for first, count in ((0, train_classes), (train_classes, test_classes)):
        labels = torch.arange(first, first + count).repeat_interleave(images_per_class)
        characters = _characters(random, count).repeat(images_per_class, axis=0)
        parts.append(Part(_draw(random, characters), labels, class_names=names))
    train, query = parts
    return RetrievalData("glyphs", train, query, None, ks=KS, gray=True, image_size=SIDE)


def _characters(random: np.random.Generator, count: int) -> _Array:
    """(count, strokes, 4, 2) control points in [-1, 1]: different subsets of their alphabet's strokes."""
    alphabets = -(-count // _ALPHABET)
    pool = _strokes(random, alphabets)
    subsets = np.array(list(combinations(range(_POOL), _STROKES)))
    chosen = [subsets[random.permutation(len(subsets))[:_ALPHABET]] for _ in range(alphabets)]
    characters = np.concatenate([strokes[picks] for strokes, picks in zip(pool, chosen, strict=True)])
    return characters[:count]


def _strokes(random: np.random.Generator, alphabets: int) -> _Array:
    """(alphabets, pool, 4, 2): long strokes, from one place to another with two bends between."""
    start = random.uniform(-0.85, 0.85, (alphabets, _POOL, 1, 2))
    angle = random.uniform(0, 2 * np.pi, (alphabets, _POOL, 1))
    direction = np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    end = np.clip(start + direction * random.uniform(0.8, 1.6, (alphabets, _POOL, 1, 1)), -0.85, 0.85)
    along = np.linspace(0, 1, 4)[:, None]
    points = start * (1 - along) + end * along
    points[:, :, 1:3] += random.normal(0, 0.35, (alphabets, _POOL, 2, 2))
    return np.clip(points, -0.9, 0.9)


def _draw(random: np.random.Generator, characters: _Array) -> _Array:
    """(N, side, side) uint8, dark ink on white paper: every character by a writer of its own."""
    count = len(characters)
    hands = characters + random.normal(0, _WOBBLE, characters.shape)
    hands += random.normal(0, _WOBBLE, (count, characters.shape[1], 1, 2))  # a stroke as a whole moves, too
    slant = _affines(random, count)
    points = torch.from_numpy(np.einsum("nij,nskj->nski", slant[:, :, :2], hands) + slant[:, None, None, :, 2])
    width = torch.from_numpy(random.uniform(0.55, 1.1, count))  # of the pen, in pixels (a standard deviation)
    chunks = zip(torch.split(points.float(), _CHUNK), torch.split(width.float(), _CHUNK), strict=True)
    return torch.cat([_ink(*chunk) for chunk in chunks]).numpy()


def _affines(random: np.random.Generator, count: int) -> _Array:
    """(N, 2, 3): rotation, unequal scale, shear and shift of a writer's page."""
    angle, shear = random.normal(0, _TILT, count), random.normal(0, _TILT, count)
    scale = random.uniform(_SMALL, 1.0, (count, 2))
    cos, sin = np.cos(angle), np.sin(angle)
    linear = np.stack([np.stack([cos, -sin + shear], -1), np.stack([sin, cos], -1)], axis=1) * scale[:, None, :]
    return np.concatenate([linear, random.normal(0, _SHIFT, (count, 2, 1))], axis=2)


def _ink(points: Tensor, width: Tensor) -> Tensor:
    """Draw (N, strokes, 4, 2) control points with Gaussian pens: separable, so a matrix product per image."""
    time = torch.linspace(0, 1, _POINTS)[:, None]
    basis = torch.cat([(1 - time) ** 3, 3 * time * (1 - time) ** 2, 3 * time**2 * (1 - time), time**3], dim=1)
    path = (basis @ points) * (SIDE / 2) + (SIDE - 1) / 2  # (N, strokes, points, 2) in pixels
    step = torch.diff(path, dim=2, append=path[:, :, -1:]).norm(dim=-1).flatten(1)  # ink flows with the pen's way
    grid = torch.arange(SIDE).float()
    x, y = (
        torch.exp(-((path[..., axis].flatten(1)[..., None] - grid) ** 2) / (2 * width[:, None, None] ** 2))
        for axis in (0, 1)
    )
    ink = torch.bmm((y * step[..., None]).transpose(1, 2), x) / width[:, None, None]
    return (255 * torch.exp(-1.2 * ink)).round().to(torch.uint8)


def load(root: Path, *, seed: int, download: bool) -> RetrievalData:
    """The default size; nothing is read."""
    return glyphs(seed=seed)


SOURCE = Source("glyphs", load, "6,000 + 3,000", "300 + 150", "unseen classes", recall(KS))
