import math
import subprocess
import sys
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pytorch_metric_learning.distances import CosineSimilarity
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from pytorch_metric_learning.utils.inference import CustomKNN
from torch import Tensor

from adaptive_memory_bank.metrics import retrieval_metrics, score_queries, similarity


def cosine(left: list[float], right: list[float]) -> float:
    norms = math.hypot(*left) * math.hypot(*right)
    # Rounded, so that equal cosines of different rows, (1, 1) and (2, 2) say, are equal numbers.
    return round(sum(a * b for a, b in zip(left, right, strict=True)) / norms, 9) if norms else 0.0


def brute_force(
    queries: Tensor, labels: Tensor, gallery: Tensor | None, gallery_labels: Tensor | None, ks
) -> dict[str, float]:
    """Sort the whole gallery for each query, at equal similarity the negatives first, and read the definitions off."""
    rows, names = (queries, labels) if gallery is None else (gallery, gallery_labels)
    rows, names, lone = rows.double().tolist(), names.tolist(), 0
    recalls, average, precision = {k: [] for k in ks}, [], []
    for number, (query, label) in enumerate(zip(queries.double().tolist(), labels.tolist(), strict=True)):
        others = [i for i in range(len(rows)) if gallery is not None or i != number]
        found = sorted((-cosine(query, rows[i]), names[i] == label) for i in others)
        hits = [hit for _, hit in found]
        total = sum(hits)
        if not total:
            lone += 1
            continue
        for k in ks:
            recalls[k].append(any(hits[:k]))
        average.append(sum(sum(hits[: i + 1]) / (i + 1) for i in range(total) if hits[i]) / total)
        precision.append(sum(hits[:total]) / total)
    shares = {f"recall@{k}": recalls[k] for k in ks} | {"map@r": average, "r_precision": precision}
    means = {name: sum(values) / len(values) if values else math.nan for name, values in shares.items()}
    return means | {"queries_without_positive": float(lone)}


def assert_same(ours: dict[str, float], reference: dict[str, float]) -> None:
    assert ours.keys() == reference.keys()
    for name, value in reference.items():
        assert ours[name] == pytest.approx(value, abs=1e-12, nan_ok=True), name


# Few directions and few labels: nearly every query has ties, duplicates, rescaled copies or zero rows among its rows.
lattice = st.lists(
    st.tuples(st.integers(-2, 2), st.integers(-2, 2), st.integers(-1, 1), st.integers(0, 3)), min_size=4, max_size=25
)


@settings(deadline=None, max_examples=150)
@given(lattice, st.none() | lattice, st.sampled_from([torch.float32, torch.float64, torch.bfloat16]))
def test_equals_brute_force_on_rows_full_of_ties(queries, gallery, dtype):
    queries, gallery = torch.tensor(queries), None if gallery is None else torch.tensor(gallery)
    search = (queries[:, :3].to(dtype), queries[:, 3])
    search += (None, None) if gallery is None else (gallery[:, :3].to(dtype), gallery[:, 3])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "No query has a positive")
        ours = retrieval_metrics(*search, ks=(1, 2, 3))
    assert_same(ours, brute_force(*search, ks=(1, 2, 3)))


@pytest.mark.parametrize("classes", [2, 7, 60])
@pytest.mark.parametrize("with_gallery", [False, True])
def test_equals_brute_force_on_random_rows(clustered, classes, with_gallery):
    queries, labels = clustered(150, classes, 24, dtype=torch.float64)
    search = (
        (queries, labels, *clustered(180, classes, 24, 1, torch.float64))
        if with_gallery
        else (queries, labels, None, None)
    )
    ours = retrieval_metrics(*search, ks=(1, 5, 20))
    assert_same(ours, brute_force(*search, ks=(1, 5, 20)))
    assert 0 < ours["map@r"] < 1


def test_float32_rows_are_ranked_as_in_float64(clustered):
    rows, labels = clustered(3000, 300, 16)
    rows[1000:1200] = rows[1200:1400]  # exact duplicates
    labels[1000:1100] = labels[1200:1300]  # half of them positives, half negatives
    # Nearly one direction: cosines crowd in [1 - 1e-3, 1], so that float32 products alone would shuffle the neighbours.
    rows = 1 + 1e-2 * rows
    exact, ours = score_queries(rows.double(), labels), score_queries(rows, labels)
    assert torch.equal(ours.best_rank, exact.best_rank)
    torch.testing.assert_close(ours.average_precision, exact.average_precision, rtol=0, atol=1e-12, equal_nan=True)
    torch.testing.assert_close(ours.r_precision, exact.r_precision, rtol=0, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize("with_gallery", [False, True])
def test_equals_pytorch_metric_learning(clustered, with_gallery):
    queries, labels = clustered(300, 40, 32, dtype=torch.float64)
    gallery = clustered(400, 40, 32, 1, torch.float64) if with_gallery else ()
    names = {"precision_at_1": "recall@1", "mean_average_precision_at_r": "map@r", "r_precision": "r_precision"}
    calculator = AccuracyCalculator(tuple(names), k="max_bin_count", knn_func=CustomKNN(CosineSimilarity()))
    reference = calculator.get_accuracy(queries, labels, *gallery)
    ours = retrieval_metrics(queries, labels, *gallery, ks=(1,))
    for theirs, name in names.items():
        assert ours[name] == pytest.approx(reference[theirs], abs=1e-12)


def test_known_value():
    # Angles in degrees; class 0 at 0, 10, 50 and class 1 at 20, 60. Neighbours of each, nearest first (+ a positive):
    #  0: 10+ 20- 50+ 60-   R=2: AP = (1/1)/2 = 1/2,  R-precision 1/2, best rank 1
    # 10: 20- and 0+ are both 10 degrees away, the tie is lost: 20- 0+ 50+: AP = (1/2)/2, R-precision 1/2, best rank 2
    # 50: 60- 20- 10+ 0+    R=2: AP 0, best rank 3
    # 20: 10- 0- 50- 60+    R=1: AP 0, best rank 4  (0 is 20 degrees away, 50 is 30)
    # 60: 50- 20+           R=1: AP 0, best rank 2
    angles = torch.deg2rad(torch.tensor([0.0, 10, 50, 20, 60]))
    rows, labels = torch.stack([angles.cos(), angles.sin()], dim=1), torch.tensor([0, 0, 0, 1, 1])
    assert score_queries(rows, labels).best_rank.tolist() == [1, 2, 3, 4, 2]
    expected = {"recall@1": 1 / 5, "recall@2": 3 / 5, "recall@3": 4 / 5, "map@r": 0.75 / 5, "r_precision": 1 / 5}
    assert_same(retrieval_metrics(rows, labels, ks=(1, 2, 3)), expected | {"queries_without_positive": 0.0})


@pytest.mark.parametrize("dim", [3, 64, 512, 2048])
@pytest.mark.parametrize("block_bytes", [2**12, 2**25])
def test_collapsed_embeddings_score_no_better_than_chance(monkeypatch, dim, block_bytes):
    monkeypatch.setattr(similarity, "BLOCK_BYTES", block_bytes)
    generator = torch.Generator().manual_seed(dim)
    one = torch.rand(1, dim, generator=generator)
    # Rescaled copies and the last bits of a float differ, as they do when a network maps everything to one direction.
    rows = one * (0.1 + 9 * torch.rand(301, 1, generator=generator))
    labels = torch.arange(301) // 7
    for collapsed in (one.expand(301, dim), rows, -rows):
        metrics = retrieval_metrics(collapsed, labels, ks=(1, 10, 294))
        assert metrics["recall@1"] == metrics["recall@10"] == metrics["map@r"] == metrics["r_precision"] == 0.0
        assert metrics["recall@294"] == 0.0  # 294 negatives come first,
        assert set(score_queries(collapsed, labels).best_rank.tolist()) == {295}  # then the first positive


@pytest.mark.parametrize("noise", [1e-6, 1e-4])
def test_embeddings_collapsed_up_to_noise_score_at_chance(noise):
    generator = torch.Generator().manual_seed(0)
    rows = torch.rand(1, 64, generator=generator) + noise * torch.randn(2000, 64, generator=generator)
    metrics = retrieval_metrics(rows, torch.arange(2000) // 10, ks=(1,))
    # Chance is 9 / 1999 = 0.0045 with a standard deviation of 0.0015 over 2,000 queries.
    assert metrics["recall@1"] <= 0.0045 + 3 * 0.0015


def test_an_optimistic_ranking_would_have_called_collapse_perfect():
    rows, labels = torch.ones(20, 4), torch.arange(20) // 5
    similar = (rows @ rows.T).fill_diagonal_(-1)
    first_positive = torch.stack([similar[i][labels == labels[i]].max() for i in range(20)])
    assert ((similar > first_positive[:, None]).sum(1) == 0).all()  # nothing is strictly nearer: "recall@1 = 1.0"
    assert retrieval_metrics(rows, labels, ks=(1,))["recall@1"] == 0.0


def test_ties_among_positives_cost_nothing():
    rows = torch.tensor([[1.0, 0.0], [1.0, 0.0], [2.0, 0.0], [0.0, 1.0], [0.0, 3.0]])
    metrics = retrieval_metrics(rows, torch.tensor([0, 0, 0, 1, 1]), ks=(1,))
    assert metrics["recall@1"] == metrics["map@r"] == metrics["r_precision"] == 1.0


def test_a_query_is_left_out_by_index_and_its_exact_duplicates_stay():
    rows = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.6, 0.8]])
    same = score_queries(rows, torch.tensor([0, 0, 1]))
    assert same.best_rank.tolist() == [1, 1, 0]  # the duplicate is found at rank 1
    other = score_queries(rows, torch.tensor([0, 1, 0]))
    assert other.best_rank.tolist() == [2, 0, 2]  # the duplicate of another class is nearer than the positive
    # Against a gallery nothing is left out: every query finds its own copy.
    assert retrieval_metrics(rows, torch.arange(3), rows, torch.arange(3), ks=(1,))["recall@1"] == pytest.approx(1 / 3)


def test_queries_without_positive_are_left_out_and_counted(clustered):
    rows, labels = clustered(80, 8, 16)
    strangers = clustered(5, 8, 16, seed=3)[0]
    gallery = clustered(90, 8, 16, seed=1)
    alone = retrieval_metrics(rows, labels, *gallery, ks=(1, 5))
    joined = retrieval_metrics(
        torch.cat([rows, strangers]), torch.cat([labels, torch.arange(100, 105)]), *gallery, ks=(1, 5)
    )
    assert_same(joined, alone | {"queries_without_positive": 5.0})


def test_without_any_positive_the_shares_are_nan_and_a_warning_says_so():
    with pytest.warns(UserWarning, match="No query has a positive in the gallery"):
        metrics = retrieval_metrics(torch.eye(4), torch.arange(4), ks=(1,))
    assert metrics.pop("queries_without_positive") == 4.0
    assert all(math.isnan(value) for value in metrics.values())


def test_k_beyond_the_gallery_is_clamped_with_a_warning(clustered):
    rows, labels = clustered(30, 3, 8)
    with pytest.warns(UserWarning, match=r"`ks` \[30, 1000\] are clamped to 29, the rows there are to find"):
        metrics = retrieval_metrics(rows, labels, ks=(1, 29, 30, 1000))
    assert metrics["recall@29"] == metrics["recall@30"] == metrics["recall@1000"] == 1.0


def test_labels_may_be_any_integers(clustered):
    rows, labels = clustered(60, 5, 8)
    bounds = torch.iinfo(torch.int64)
    strange = torch.tensor([bounds.min, bounds.max, -1, 0, 2**53 + 1])[labels]
    expected = retrieval_metrics(rows, labels, ks=(1, 3))
    assert_same(retrieval_metrics(rows, strange, ks=(1, 3)), expected)
    assert_same(retrieval_metrics(rows, labels.to(torch.uint8), ks=(1, 3)), expected)


@pytest.mark.parametrize("block_bytes", [1, 2**10, 2**14])
def test_results_do_not_depend_on_the_block_size(monkeypatch, clustered, block_bytes):
    rows, labels = clustered(700, 90, 16, dtype=torch.float64)
    labels[:200] = 1  # one large class beside many small ones
    expected = score_queries(rows, labels)
    monkeypatch.setattr(similarity, "BLOCK_BYTES", block_bytes)
    ours = score_queries(rows, labels)
    torch.testing.assert_close(ours.best_rank, expected.best_rank, rtol=0, atol=0)
    torch.testing.assert_close(ours.average_precision, expected.average_precision, equal_nan=True)
    torch.testing.assert_close(ours.r_precision, expected.r_precision, equal_nan=True)


@pytest.mark.parametrize("scale", [1e-30, 1e-3, 1e30])
def test_only_the_direction_of_a_row_counts(clustered, scale):
    rows, labels = clustered(100, 9, 16)
    assert_same(retrieval_metrics(rows * scale, labels, ks=(1, 5)), retrieval_metrics(rows, labels, ks=(1, 5)))


def test_neither_autocast_nor_reduced_matmul_precision_nor_autograd_changes_the_result(clustered):
    rows, labels = clustered(400, 60, 64)
    expected = retrieval_metrics(rows, labels, ks=(1, 5))
    torch.set_float32_matmul_precision("medium")
    try:
        with torch.autocast("cpu", torch.bfloat16):
            assert_same(retrieval_metrics(rows.requires_grad_(), labels, ks=(1, 5)), expected)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_worst_names_the_queries_whose_best_positive_ranks_last():
    angles = torch.deg2rad(torch.tensor([0.0, 10, 50, 20, 60, 170]))
    rows, labels = torch.stack([angles.cos(), angles.sin()], dim=1), torch.tensor([0, 0, 0, 1, 1, 2])
    scores = score_queries(rows, labels)  # ranks 1, 2, 3, 4, 2 and none for the last
    assert scores.worst(3).tolist() == [3, 2, 1]
    assert scores.worst(99).tolist() == [3, 2, 1, 4, 0]


ROWS, LABELS = torch.eye(3), torch.arange(3)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((ROWS * math.nan, LABELS), ValueError, r"`queries` must be finite, got NaN or inf in 3 rows, first in row 0"),
        ((ROWS, LABELS, ROWS / 0, LABELS), ValueError, r"`gallery` must be finite, got NaN or inf in 3 rows"),
        ((ROWS.tolist(), LABELS), TypeError, r"`queries` must be a tensor, got list"),
        ((ROWS.int(), LABELS), TypeError, r"`queries` must hold floating point embeddings, got torch.int32; convert"),
        ((ROWS[0], LABELS), ValueError, r"`queries` must have shape \(N, dim\) with N, dim >= 1, got \(3,\)"),
        ((ROWS[:0], LABELS[:0]), ValueError, r"`queries` must have shape .* got \(0, 3\)"),
        ((ROWS, LABELS.float()), TypeError, r"`query_labels` must hold integers, got torch.float32"),
        ((ROWS, [0, 1, 2]), TypeError, r"`query_labels` must be a tensor, got list"),
        ((ROWS, LABELS[:, None]), ValueError, r"`query_labels` must have shape \(3,\), got \(3, 1\)"),
        ((ROWS, LABELS, ROWS, LABELS[:2]), ValueError, r"`gallery_labels` must have shape \(3,\), got \(2,\)"),
        ((ROWS, LABELS, ROWS), ValueError, r"`gallery` and `gallery_labels` must be given together"),
        ((ROWS, LABELS, None, LABELS), ValueError, r"`gallery` and `gallery_labels` must be given together"),
        ((ROWS, LABELS, torch.eye(4), torch.arange(4)), ValueError, r"must have the same dimension, got 3 and 4"),
        ((ROWS, LABELS, None, None, (0,)), ValueError, r"`ks` must be a positive integer, got 0"),
        ((ROWS, LABELS, None, None, (1.5,)), ValueError, r"`ks` must be a positive integer, got 1.5"),
        ((ROWS, LABELS, None, None, (True,)), ValueError, r"`ks` must be a positive integer, got True"),
        ((ROWS, LABELS, None, None, 5), TypeError, r"`ks` must be a sequence of positive integers, got 5"),
    ],
)
def test_bad_input_is_named(arguments, error, message):
    with pytest.raises(error, match=message):
        retrieval_metrics(*arguments)


# Random rows: most queries rank their positives deep in the crowd and are scored again in float64, the costly case.
# A tenth of the queries takes as much memory as all of them, which the benchmark scores.
PEAK = """
import resource, torch
from adaptive_memory_bank.metrics import retrieval_metrics
rows, labels = torch.randn(60_502, 512), torch.randint(11_316, (60_502,))
now = int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
retrieval_metrics(rows[:6_000], labels[:6_000], rows, labels)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - now)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss counts KiB on Linux only")
def test_the_gallery_of_stanford_online_products_takes_less_than_two_gibibytes():
    run = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, check=True)
    assert 2**27 < int(run.stdout) < 2 * 2**30  # above the unit rows, 118 MiB: the measurement works
