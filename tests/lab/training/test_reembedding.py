"""Rows embedded again are those that were stored, as long as the encoder rests."""

import copy

import pytest
import torch
from torch import nn

from adaptive_memory_bank.lab.data.randomness import random_state
from adaptive_memory_bank.lab.training import reembedding, train
from adaptive_memory_bank.lab.training.moco import task as moco
from adaptive_memory_bank.lab.training.reembedding import KeptImages, PastBatches, embed_again, sample_slots
from adaptive_memory_bank.lab.training.retrieval import task as retrieval
from exactly import assert_same

RESTING = {"adapter": "identity", "lr": 1e-30, "weight_decay": 0.0, "memory": 70}  # 4 batches of 16, and 6 rows


@pytest.fixture
def after_epochs(monkeypatch):
    """Look at a trainer's module after every epoch, while it is still in training."""

    def watch(kind, look):
        seen = []

        def on_train_epoch_end(self):
            seen.append(look(self))

        monkeypatch.setattr(kind, "on_train_epoch_end", on_train_epoch_end, raising=False)
        return seen

    return watch


def all_again(module):
    return embed_again(module, torch.arange(len(module.bank)))


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_a_resting_encoder_makes_the_stored_rows_again(precision, retrieval_config, after_epochs):
    def look(module):
        assert len(module.bank) == 70
        torch.testing.assert_close(all_again(module), module.bank.embeddings, rtol=0, atol=1e-5)

    seen = after_epochs(retrieval.RetrievalModule, look)
    result = train.run(retrieval_config(**RESTING, mine=False, precision=precision))
    assert len(seen) == 2
    assert result.metrics["bank/staleness"] < 1e-5
    assert result.metrics["bank/staleness_unadapted"] < 1e-5


def test_eval_mode_would_call_fresh_rows_stale(retrieval_config, after_epochs):
    """What staleness used to be: the difference between the two modes of batch norm, and no drift at all."""

    def look(module):
        module.encoder.eval()
        rows = all_again(module)
        module.encoder.train()
        return (rows - module.bank.embeddings).norm(dim=1).mean().item()

    seen = after_epochs(retrieval.RetrievalModule, look)
    train.run(retrieval_config(**RESTING, mine=False))
    assert min(seen) > 0.05


def test_an_image_in_another_batch_has_another_row(retrieval_config, after_epochs):
    """Why whole batches are embedded: batch norm shows each image in the light of the others."""

    def look(module):
        past = PastBatches(module.data.train, module.data.train_transform, module.plan, module.config.seed)
        number = module.plan.number(module.current_epoch, 8)
        half = module.embed_batch(past[number][:8], number)
        return (half - module.embed_batch(past[number], number)[:8]).norm(dim=1).mean().item()

    seen = after_epochs(retrieval.RetrievalModule, look)
    train.run(retrieval_config(**RESTING, mine=False))
    assert min(seen) > 0.01


@pytest.mark.parametrize("options", [{}, {"same_image_negatives": True}, {"shuffle": False}, {"split_batch_norm": 0}])
def test_a_resting_key_encoder_makes_the_stored_keys_again(options, moco_config, after_epochs):
    def look(module):
        torch.testing.assert_close(all_again(module), module.bank.embeddings, rtol=0, atol=1e-4)

    after_epochs(moco.MocoModule, look)
    result = train.run(moco_config(**RESTING, **options))
    assert result.metrics["bank/staleness"] < 1e-4


def test_groups_of_split_batch_norm_are_those_of_the_step(moco_config, after_epochs):
    """The shuffle of the keys decides them: that of another batch gives other keys."""

    def look(module):
        past = PastBatches(module.data.train, module.data.train_transform, module.plan, module.config.seed)
        number = module.plan.number(module.current_epoch, 3)
        first, again, other = (module.embed_batch(past[number], n) for n in (number, number, number + 1))
        assert torch.equal(first, again)
        return (first - other).norm(dim=1).mean().item()

    seen = after_epochs(moco.MocoModule, look)
    train.run(moco_config(**RESTING))
    assert min(seen) > 0.01


def state_of(module):
    """Everything that embedding must leave alone."""
    return copy.deepcopy([list(part.state_dict().items()) for part in module.embedders]), random_state()


def test_buffers_and_generators_stay_as_they_are(retrieval_config, after_epochs):
    def look(module):
        module.encoder.norm = nn.Dropout(0.5)
        before = state_of(module)
        assert (all_again(module) == 0).any()  # dropout drew
        assert_same(before, state_of(module))
        module.encoder(torch.randn(4, 1, 16, 16))
        with pytest.raises(AssertionError):  # the check would have found it
            assert_same(before, state_of(module))

    seen = after_epochs(retrieval.RetrievalModule, look)
    train.run(retrieval_config(**RESTING, mine=False, epochs=1))
    assert len(seen) == 1


def test_buffers_of_the_key_encoder_stay_as_they_are(moco_config, after_epochs):
    def look(module):
        before = state_of(module)
        all_again(module)
        assert_same(before, state_of(module))

    seen = after_epochs(moco.MocoModule, look)
    train.run(moco_config(**RESTING, epochs=1))
    assert len(seen) == 1


@pytest.mark.parametrize(("rows", "batches"), [(1, 1), (32, 2), (80, 5), (512, 5)])
def test_a_sample_has_whole_batches_of_all_ages(rows, batches, retrieval_config, after_epochs):
    """70 rows are what is left of 5 batches: 6 rows of the oldest, 16 of the others."""

    def look(module):
        numbers = module.sources.images(sample_slots(module, rows)) // 16
        latest = module.plan.number(module.current_epoch, 8)
        return {latest - number: int((numbers == number).sum()) for number in numbers.unique().tolist()}

    seen = after_epochs(retrieval.RetrievalModule, look)
    train.run(retrieval_config(**RESTING, mine=False, epochs=1))
    ages = {1: {2: 16}, 2: {1: 16, 3: 16}, 5: {0: 16, 1: 16, 2: 16, 3: 16, 4: 6}}
    assert seen == [ages[batches]]


@pytest.mark.parametrize("loss", ["supcon", "ContrastiveLoss"])
def test_a_fresh_memory_holds_what_the_encoder_of_now_makes_of_its_images(loss, retrieval_config, monkeypatch):
    """Naively: keep the images of all steps, and put each batch through a copy of the encoder."""
    history, checked = [], []
    batch_loss = retrieval.RetrievalModule.batch_loss

    def watched(self, images, labels, indices, number):
        if history:
            encoder = copy.deepcopy(self.encoder)
            with torch.no_grad():
                rows = torch.cat([encoder(batch) for batch, _ in history])[-70:]
            oldest_first = self.sources.images(torch.arange(len(self.bank))).argsort()
            torch.testing.assert_close(self.bank.embeddings[oldest_first], rows, rtol=0, atol=1e-5)
            assert torch.equal(self.bank.labels[oldest_first], torch.cat([known for _, known in history])[-70:])
            stored = self.sources.raw.embeddings[oldest_first]
            checked.append((stored - rows).norm(dim=1).max().item())
        history.append((images, labels))
        return batch_loss(self, images, labels, indices, number)

    monkeypatch.setattr(retrieval.RetrievalModule, "batch_loss", watched)
    options = {"adapter": "fresh", "fresh_every": 1, "memory": 70, "mine": False, "staleness_rows": 0}
    train.run(retrieval_config(**options, loss=loss))
    assert len(checked) == 17
    assert max(checked) > 0.1  # the encoder moved: rows as they were stored are no longer right


@pytest.mark.parametrize("same_image_negatives", [False, True])
def test_a_fresh_queue_holds_what_the_key_encoder_of_now_makes_of_its_images(
    same_image_negatives, moco_config, monkeypatch
):
    """The same for MoCo, whose keys are the second views; the momentum moves its encoder within the step."""
    history, checked = [], []
    batch_loss = moco.MocoModule.batch_loss

    def watched(self, images, labels, indices, number):
        if history:
            encoder = copy.deepcopy(nn.Sequential(self.key_backbone, self.key_head))
            with torch.no_grad():
                keys = nn.functional.normalize(torch.cat([encoder(views[:, 1]) for views in history])[-70:], dim=1)
            oldest_first = self.sources.images(torch.arange(len(self.bank))).argsort()
            torch.testing.assert_close(self.bank.embeddings[oldest_first], keys, rtol=0, atol=1e-5)
            checked.append((self.sources.raw.embeddings[oldest_first] - keys).norm(dim=1).max().item())
        history.append(images)
        return batch_loss(self, images, labels, indices, number)

    monkeypatch.setattr(moco.MocoModule, "batch_loss", watched)
    options = {"adapter": "fresh", "fresh_every": 1, "memory": 70, "momentum": 0.5, "staleness_rows": 0}
    alone = {"shuffle": False, "split_batch_norm": 0}  # every key by itself, but for batch norm
    train.run(moco_config(**options, **alone, same_image_negatives=same_image_negatives))
    assert len(checked) == 23
    assert max(checked) > 0.1


def test_a_fresh_memory_is_embedded_again_every_few_steps_once_it_is_used(retrieval_config, monkeypatch):
    """9 steps an epoch, the first 4 (0.45 of them) without memory."""
    refreshed = []
    refresh = reembedding.refresh

    def watched(module, kept):
        refreshed.append(module.trainer.global_step)
        refresh(module, kept)

    monkeypatch.setattr(reembedding, "refresh", watched)
    config = retrieval_config(adapter="fresh", fresh_every=5, memory_start=0.45)
    result = train.run(config)
    assert refreshed == [4, 9, 14]
    assert 0 < result.metrics["bank/staleness"] < result.metrics["bank/staleness_unadapted"]


class CountedBatches:
    """Stands for past batches: four floats of every batch, and a note of those that were made."""

    def __init__(self):
        self.made = []

    def __getitem__(self, number):
        self.made.append(number)
        return torch.full((4,), float(number))


def fetched(kept, past, numbers):
    return [int(images[0]) for images in kept.fetch(past, numbers, workers=0)]


def test_images_that_were_kept_are_not_made_again():
    kept, past = KeptImages(), CountedBatches()
    assert fetched(kept, past, [1, 2, 3]) == [1, 2, 3]
    assert fetched(kept, past, [2, 3, 4]) == [2, 3, 4]
    assert past.made == [1, 2, 3, 4]
    assert fetched(kept, past, [1, 4]) == [1, 4]  # 1 was let go when it was not asked for
    assert past.made == [1, 2, 3, 4, 1]


def test_images_without_room_are_made_again():
    kept, past = KeptImages(room=2 * 16), CountedBatches()  # a batch has 16 bytes
    assert fetched(kept, past, [1, 2, 3]) == fetched(kept, past, [1, 2, 3]) == [1, 2, 3]
    assert past.made == [1, 2, 3, 3]
    assert fetched(kept, past, [3, 2]) == [3, 2]  # 1 makes room
    assert fetched(kept, past, [3, 2]) == [3, 2]
    assert past.made == [1, 2, 3, 3, 3]


def test_a_fresh_memory_is_the_same_with_and_without_kept_images(retrieval_config, monkeypatch):
    options = {"adapter": "fresh", "fresh_every": 2, "memory": 70}
    kept = train.run(retrieval_config(**options))
    monkeypatch.setattr(KeptImages.__init__, "__defaults__", (0,))
    made_again = train.run(retrieval_config(**options))
    assert {name: value for name, value in kept.metrics.items() if not name.startswith("time/")} == {
        name: value for name, value in made_again.metrics.items() if not name.startswith("time/")
    }
