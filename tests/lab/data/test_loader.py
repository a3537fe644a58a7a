import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from torch import nn

from adaptive_memory_bank.lab.data import BatchLoader, ImageDataset, Part, PKSampler
from adaptive_memory_bank.lab.data.jitter import AffineJitter


@pytest.fixture
def make(small_images):
    def loader(**options):
        part = Part(small_images, torch.arange(24) // 4, class_names=tuple("abcdef"))
        sampler = PKSampler(part.labels, classes_per_batch=2, images_per_class=2, seed=1)
        return BatchLoader(ImageDataset(part, AffineJitter(16), seed=1), sampler, **options)

    return loader


def epochs(loader, numbers):
    """All batches as [(epoch, indices, images)]."""
    seen = []
    for number in numbers:
        loader.set_epoch(number)
        seen += [(number, indices.tolist(), images) for images, _, indices in loader]
    return seen


def assert_same(ours, theirs):
    assert [batch[:2] for batch in ours] == [batch[:2] for batch in theirs]
    for a, b in zip(ours, theirs, strict=True):
        assert torch.equal(a[2], b[2])


def test_hands_out_the_samplers_batches_whole(make):
    loader = make()
    assert len(loader) == 6
    for (images, labels, indices), expected in zip(loader, make().plan, strict=True):
        assert indices.tolist() == expected
        assert images.shape == (4, 1, 16, 16)
        assert torch.equal(labels, loader.images.part.labels[indices])


def test_workers_change_nothing_over_epochs(make):
    assert_same(epochs(make(num_workers=2), range(3)), epochs(make(), range(3)))


def test_epochs_differ_in_order_and_draws(make):
    first, second = epochs(make(), [0]), epochs(make(), [1])
    assert [batch[1] for batch in first] != [batch[1] for batch in second]


@pytest.mark.parametrize("workers", [0, 1])
def test_draws_belong_to_the_epoch(make, workers):
    loader, reference = make(num_workers=workers), make().images
    for epoch in (0, 2):
        loader.set_epoch(epoch)
        reference.set_epoch(epoch)
        for images, _, indices in loader:
            assert torch.equal(images, reference.batch(indices)[0])


def test_position_is_right_after_resuming_twice(make):
    loader = make()
    loader.load_state_dict({"epoch": 3, "batch": 2})
    next(iter(loader))
    assert loader.state_dict() == {"epoch": 3, "batch": 3}


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("stop", [1, 4, 6])
def test_save_load_go_on_equals_never_having_stopped(make, workers, stop):
    whole = epochs(make(), [0, 1, 2])
    loader = make(num_workers=workers)
    before = epochs(loader, [0])
    loader.set_epoch(1)
    for (images, _, indices), _ in zip(loader, range(stop), strict=False):
        before.append((1, indices.tolist(), images))
        state = loader.state_dict()
    assert state == ({"epoch": 1, "batch": stop} if stop < 6 else {"epoch": 2, "batch": 0})
    resumed = make(num_workers=workers)
    resumed.load_state_dict(state)
    assert resumed.state_dict() == state
    assert_same(before + epochs(resumed, range(state["epoch"], 3)), whole)


class Recorder(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer, self.seen = nn.Linear(256, 1), []

    def training_step(self, batch, _):
        images, _, indices = batch
        self.seen.append((indices.tolist(), float(images.sum())))
        return self.layer(images.flatten(1)).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def fit(folder, loader, *, checkpoint=None):
    """Train 20 steps (6 an epoch), keeping a checkpoint of every step."""
    module = Recorder()
    keeper = ModelCheckpoint(folder, filename="{step}", every_n_train_steps=1, save_top_k=-1)
    trainer = pl.Trainer(
        default_root_dir=folder,
        max_steps=20,
        accelerator="cpu",
        logger=False,
        callbacks=[keeper],
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
    )
    trainer.fit(module, loader, ckpt_path=checkpoint)
    return module.seen


# Lightning 2.6 with a newer torch; its advice on workers and checkpoints is not this test's business.
@pytest.mark.filterwarnings(r"ignore:`isinstance\(treespec, LeafSpec\)` is deprecated:FutureWarning")
@pytest.mark.filterwarnings("ignore:The 'train_dataloader' does not have many workers:UserWarning")
@pytest.mark.filterwarnings("ignore:The dirpath has changed:UserWarning")
@pytest.mark.parametrize("stop", [1, 8, 12])  # in the first epoch, in the second, at its end
def test_lightning_resumes_with_the_very_next_batch(make, tmp_path, stop):
    whole = fit(tmp_path / "whole", make())
    rest = fit(tmp_path / "rest", make(), checkpoint=tmp_path / "whole" / f"step={stop}.ckpt")
    assert len(whole) == 20
    assert rest == whole[stop:]
