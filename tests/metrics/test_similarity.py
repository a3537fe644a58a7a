import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

from adaptive_memory_bank.metrics import nearest, similarity


@pytest.mark.parametrize("k", [1, 5, 40])
@pytest.mark.parametrize("with_gallery", [False, True])
def test_nearest_equals_a_full_sort(clustered, k, with_gallery):
    queries = clustered(90, 5, 12, dtype=torch.float64)[0]
    gallery = clustered(2000, 5, 12, seed=1, dtype=torch.float64)[0] if with_gallery else None
    similar = F.normalize(queries) @ F.normalize(queries if gallery is None else gallery).T
    if gallery is None:
        similar.fill_diagonal_(-2)
    assert torch.equal(nearest(queries, gallery, k=k), similar.argsort(dim=1, descending=True)[:, :k])


def test_nearest_leaves_out_the_query_by_index_and_finds_its_duplicate():
    rows = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    assert nearest(rows, k=1)[:2].tolist() == [[1], [0]]
    assert nearest(torch.ones(33, 4), k=32).sort(dim=1).values.tolist() == [
        [i for i in range(33) if i != query] for query in range(33)
    ]


def test_nearest_clamps_k_with_a_warning():
    with pytest.warns(UserWarning, match="`k` of 10 is clamped to 3, the rows there are to find"):
        assert nearest(torch.eye(4)).shape == (4, 3)
    with pytest.raises(ValueError, match="`k` must be a positive integer, got 0"):
        nearest(torch.eye(4), k=0)


@pytest.mark.parametrize("k", [1, 3, 16, 17, 64, 1024])
def test_largest_equals_topk(k):
    generator = torch.Generator().manual_seed(k)
    distinct = torch.stack([torch.randperm(1024, generator=generator) for _ in range(20)]).float()
    values, columns = similarity.largest(distinct, k)
    expected = distinct.topk(k, dim=1)
    assert torch.equal(values, expected.values)
    assert torch.equal(columns, expected.indices)


@pytest.mark.parametrize("k", [1, 16, 17])
def test_largest_equals_topk_with_ties_and_infinities(k):
    block = torch.randint(3, (50, 1024), generator=torch.Generator().manual_seed(k)).float().log()  # log 0 = -inf
    block[7] = -torch.inf
    values, columns = similarity.largest(block, k)
    assert torch.equal(values, block.topk(k, dim=1).values)
    assert torch.equal(block.gather(1, columns), values)
    assert all(len(set(row)) == k for row in columns.tolist())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("dim", [2, 8, 64, 512, 2048, 8192])
def test_one_cosine_computed_in_different_places_stays_within_half_the_tolerance(dim, dtype):
    generator = torch.Generator().manual_seed(dim)
    for row in (torch.randn(1, dim, generator=generator, dtype=dtype), torch.full((1, dim), 0.37, dtype=dtype)):
        values = []
        for rows in (1, 3, 37, 130):
            for columns in (5, 100, 999):
                copies = F.normalize(row * (0.01 + torch.rand(columns, 1, generator=generator, dtype=dtype)))
                values.append((F.normalize(row).expand(rows, dim).contiguous() @ copies.T).flatten())
        spread = torch.cat(values).max() - torch.cat(values).min()
        assert spread <= 0.5 * similarity.tolerance(row)


def test_blocks_stay_within_their_budget():
    for rows, positives in ((1_000, 0), (60_502, 12), (60_502, 60_000), (3_000_000, 10)):
        units = torch.empty(1, 4).expand(rows, 4)
        order, counts = torch.arange(2_000), torch.full((2_000,), positives)
        chunks = similarity.split(order, units, None, counts)
        assert torch.equal(torch.cat(chunks), order)
        assert max(map(len, chunks)) * (4 * rows + 64 * positives) <= 8 * similarity.BLOCK_BYTES


def test_the_product_runs_in_full_precision_and_the_setting_comes_back(monkeypatch):
    seen, product = [], torch.mm

    def spy(*arguments, **options):
        seen.append(torch.get_float32_matmul_precision())
        return product(*arguments, **options)

    monkeypatch.setattr(torch, "mm", spy)
    torch.set_float32_matmul_precision("medium")
    try:
        nearest(torch.eye(4), k=1)
        assert seen == ["highest"]
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")


@pytest.mark.skipif(not hasattr(torch.backends.cuda.matmul, "fp32_precision"), reason="an older torch has one setting")
def test_a_precision_set_for_one_backend_is_left_alone():
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    try:
        assert nearest(torch.eye(4), k=1).shape == (4, 1)
        assert torch.backends.cuda.matmul.fp32_precision == "tf32"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_the_progress_bar_counts_queries(capsys, monkeypatch):
    monkeypatch.setattr(similarity, "BLOCK_BYTES", 1000)
    nearest(torch.eye(200), k=1, progress=True)
    assert "200/200" in capsys.readouterr().err
    nearest(torch.eye(200), k=1)
    assert not capsys.readouterr().err


def test_without_tqdm_the_progress_bar_is_left_out_with_a_warning(monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with pytest.warns(UserWarning, match="`progress=True` needs tqdm"):
        assert nearest(torch.eye(3), k=2, progress=True).shape == (3, 2)


def test_the_metrics_import_torch_and_nothing_heavier():
    code = (
        "import sys; import torch; before = set(sys.modules); import adaptive_memory_bank.metrics;"
        "print({name.split('.')[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "{'adaptive_memory_bank'}"
