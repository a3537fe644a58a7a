"""Images to train and score on: `load_dataset(name)` and what feeds it to a model."""

from typing import TYPE_CHECKING

from adaptive_memory_bank.lazy import lazy_names

if TYPE_CHECKING:
    from adaptive_memory_bank.lab.data.augmentation import eval_transform, train_transform
    from adaptive_memory_bank.lab.data.dataset import ImageDataset
    from adaptive_memory_bank.lab.data.loader import BatchLoader
    from adaptive_memory_bank.lab.data.parts import Part, RetrievalData
    from adaptive_memory_bank.lab.data.registry import available_datasets, load_dataset
    from adaptive_memory_bank.lab.data.sampler import PKSampler, ShuffleSampler

__all__ = [
    "BatchLoader",
    "ImageDataset",
    "PKSampler",
    "Part",
    "RetrievalData",
    "ShuffleSampler",
    "available_datasets",
    "eval_transform",
    "load_dataset",
    "train_transform",
]

# The registry's names are there without torch.
__getattr__ = lazy_names(
    __name__,
    {
        "augmentation": "eval_transform train_transform",
        "dataset": "ImageDataset",
        "loader": "BatchLoader",
        "parts": "Part RetrievalData",
        "registry": "available_datasets load_dataset",
        "sampler": "PKSampler ShuffleSampler",
    },
)
