from collections import Counter
from itertools import chain, islice, product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_memory_bank.lab.data.sampler import PKSampler, ShuffleSampler

LABELS = torch.arange(12).repeat_interleave(8)[torch.randperm(96, generator=torch.Generator().manual_seed(0))]


def pk(labels=LABELS, **options):
    return PKSampler(labels, **{"classes_per_batch": 4, "images_per_class": 2, **options})


def test_every_batch_is_p_classes_of_k_images_side_by_side():
    for batch in pk():
        groups = LABELS[torch.tensor(batch)].view(4, 2)
        assert (groups[:, 0] == groups[:, 1]).all()
        assert groups[:, 0].unique().numel() == 4
        assert len(set(batch)) == 8


def test_an_epoch_of_equal_classes_sees_every_image_once():
    assert sorted(chain(*pk())) == list(range(96))


@pytest.mark.parametrize("seed", range(3))
def test_groups_that_collide_wait_and_are_not_lost(seed):
    """60 groups of 10 classes, 4 a batch: batches straddle the strata, so classes come up twice in a row."""
    sampler = PKSampler(torch.arange(10).repeat_interleave(12), classes_per_batch=4, images_per_class=2, seed=seed)
    assert len(sampler) == 15
    assert len(set(chain(*sampler))) >= 118  # at most one group of the 60 is left at the very end


def test_an_epoch_is_decided_by_seed_and_epoch():
    def epoch(seed, number):
        sampler = pk(seed=seed)
        sampler.set_epoch(number)
        return list(sampler)

    assert epoch(0, 1) == epoch(0, 1)
    assert epoch(0, 1) != epoch(0, 2)
    assert epoch(0, 1) != epoch(1, 1)


def test_the_second_pass_over_an_epoch_equals_the_first():
    sampler = pk()
    assert list(sampler) == list(sampler)


def test_partners_change_from_epoch_to_epoch():
    sampler, pairs = pk(), []
    for number in range(2):
        sampler.set_epoch(number)
        pairs.append({frozenset(batch[i : i + 2]) for batch in sampler for i in range(0, 8, 2)})
    assert len(pairs[0] & pairs[1]) < len(pairs[0]) / 2


def test_classes_meet_other_classes_in_every_batch():
    """Dealing class by class would put the same four classes together again and again."""
    sampler = PKSampler(torch.arange(40).repeat_interleave(20), classes_per_batch=4, images_per_class=4)
    meetings = Counter(frozenset(b // 20 for b in batch) for batch in sampler)
    assert max(meetings.values()) <= 2


def test_ranks_share_one_global_batch_in_whole_groups():
    alone = list(pk(classes_per_batch=6))
    ranks = [list(pk(classes_per_batch=2, rank=rank, world_size=3)) for rank in range(3)]
    for batch, *shares in zip(alone, *ranks, strict=True):
        assert list(chain(*shares)) == batch
        for share in shares:
            groups = LABELS[torch.tensor(share)].view(2, 2)
            assert (groups[:, 0] == groups[:, 1]).all()


@pytest.mark.parametrize(
    "make",
    [
        lambda **ranks: pk(classes_per_batch=2, seed=1, **ranks),
        lambda **ranks: ShuffleSampler(50, batch_size=4, seed=1, **ranks),
    ],
    ids=["pk", "shuffle"],
)
def test_every_rank_finds_the_images_of_every_batch_by_its_number(make):
    epochs = 10  # more than are kept
    ranks = [make(rank=rank, world_size=2) for rank in range(2)]
    batches = {}
    for epoch, rank in product(range(epochs), range(2)):
        ranks[rank].set_epoch(epoch)
        for number, batch in enumerate(ranks[rank]):
            batches[ranks[rank].number(epoch, number)] = (epoch, batch)
    assert len(batches) == epochs * 2 * len(ranks[0])
    for sampler, (number, (epoch, batch)) in product(ranks, batches.items()):
        found, images = sampler.find(number)
        assert (found, images.tolist()) == (epoch, batch)


def test_start_at_skips_batches_once():
    sampler = pk()
    whole = list(sampler)
    sampler.start_at(5)
    assert list(sampler) == whole[5:]
    assert list(sampler) == whole


def test_state_goes_on_in_another_process():
    sampler = pk(seed=3)
    sampler.set_epoch(2)
    whole = list(sampler)
    sampler.start_at(4)
    resumed = pk(seed=3)
    resumed.load_state_dict(sampler.state_dict())
    resumed.set_epoch(2)  # Lightning sets the epoch again
    assert list(resumed) == whole[4:]
    resumed.set_epoch(3)
    assert len(list(resumed)) == len(resumed)


def test_short_classes_repeat_their_images_evenly():
    labels = torch.tensor([0, 0, 0, 1, 2, 2, 2, 2])
    for batch in PKSampler(labels, classes_per_batch=3, images_per_class=4):
        groups = torch.tensor(batch).view(3, 4)
        by_class = {int(labels[group[0]]): Counter(group.tolist()) for group in groups}
        assert sorted(by_class[0].values()) == [1, 1, 2]
        assert list(by_class[1].values()) == [4]
        assert sorted(by_class[2].values()) == [1, 1, 1, 1]


def test_one_huge_class_does_not_end_the_epoch_early():
    labels = torch.cat([torch.zeros(400, dtype=torch.int64), torch.arange(1, 4).repeat_interleave(4)])
    sampler = PKSampler(labels, classes_per_batch=4, images_per_class=4)
    batches = list(sampler)
    assert len(batches) == len(sampler) == (100 + 3) // 4
    for batch in batches:
        assert labels[torch.tensor(batch)].unique().numel() == 4


def test_labels_may_be_any_integers():
    assert len(list(PKSampler([-5, -5, 10**12, 10**12], classes_per_batch=2, images_per_class=2))) == 1


@given(
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=12),
    classes=st.integers(1, 5),
    images=st.integers(1, 5),
    world=st.integers(1, 3),
    epoch=st.integers(0, 3),
)
@settings(max_examples=150, deadline=None)
def test_any_split_gives_whole_batches(sizes, classes, images, world, epoch):
    labels = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    if classes * world > len(sizes):
        with pytest.raises(ValueError, match="`classes_per_batch` must be at most"):
            PKSampler(labels, classes_per_batch=classes, images_per_class=images, world_size=world)
        return
    ranks = []
    for rank in range(world):
        sampler = PKSampler(labels, classes_per_batch=classes, images_per_class=images, rank=rank, world_size=world)
        sampler.set_epoch(epoch)
        ranks.append(list(sampler))
        assert len(ranks[-1]) == len(sampler) >= 1
    for shares in zip(*ranks, strict=True):
        groups = labels[torch.tensor(list(chain(*shares)))].view(classes * world, images)
        assert (groups == groups[:, :1]).all()
        assert groups[:, 0].unique().numel() == classes * world


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"classes_per_batch": 13}, r"at most the number of classes \(12\), got 13\."),
        ({"classes_per_batch": 7, "world_size": 2}, "got 7 on each of 2 ranks"),
        ({"classes_per_batch": 0}, "`classes_per_batch` must be a positive integer, got 0"),
        ({"images_per_class": -1}, "`images_per_class` must be a positive integer, got -1"),
        ({"rank": 2, "world_size": 2}, "got rank 2 of 2"),
    ],
)
def test_pk_refuses(options, match):
    with pytest.raises(ValueError, match=match):
        pk(**options)


def test_start_outside_of_the_epoch_is_refused():
    with pytest.raises(ValueError, match=r"`batch` must lie in 0 \.\.\. 12, got 13"):
        pk().start_at(13)


def test_shuffle_deals_every_image_once_over_all_ranks():
    ranks = [list(ShuffleSampler(25, batch_size=4, seed=1, rank=rank, world_size=2)) for rank in range(2)]
    seen = list(chain(*chain(*ranks)))
    assert [len(r) for r in ranks] == [3, 3]
    assert len(set(seen)) == len(seen) == 24


def test_shuffle_differs_by_epoch_and_resumes():
    sampler = ShuffleSampler(40, batch_size=4)
    first = list(sampler)
    sampler.set_epoch(1)
    second = list(sampler)
    assert first != second
    sampler.load_state_dict({"epoch": 1, "batch": 7})
    assert list(islice(sampler, 1)) == second[7:8]


def test_shuffle_refuses_a_batch_larger_than_a_rank():
    with pytest.raises(ValueError, match=r"at most the images per rank \(5\), got 6"):
        ShuffleSampler(10, batch_size=6, world_size=2)
