import torch

from adaptive_memory_bank.lab.training import train
from adaptive_memory_bank.lab.training.reembedding import embed_again
from adaptive_memory_bank.lab.training.tasks import TASKS
from adaptive_memory_bank.lab.training.watch.monitors import DriftMonitor, StalenessMonitor


def test_a_probe_is_spread_over_the_training_set_and_an_encoder_at_rest_does_not_drift(retrieval_config):
    config = retrieval_config(adapter="xbn")
    module = TASKS["retrieval"].build(config).module
    monitor = DriftMonitor(every=1, size=8)
    first, second = monitor._embed(module), monitor._embed(module)
    assert torch.equal(first, second)
    assert first.shape == (8, config.embedding_dim)
    step = len(module.data.train) // 8
    images, _, _ = _batch(module, [step * n for n in range(8)])
    torch.testing.assert_close(monitor._probe, images)


def _batch(module, indices):
    from adaptive_memory_bank.lab.data import ImageDataset

    return ImageDataset(module.data.train, module.data.eval_transform).batch(indices)


def test_a_probe_may_ask_for_more_images_than_there_are(retrieval_config):
    module = TASKS["retrieval"].build(retrieval_config()).module
    assert len(DriftMonitor(every=1, size=10_000)._embed(module)) == len(module.data.train)


def test_nothing_is_measured_that_is_switched_off(retrieval_config):
    metrics = train.run(retrieval_config(drift_every=0, staleness_rows=0)).metrics
    assert not [name for name in metrics if name.startswith(("drift/", "bank/staleness"))]


def test_staleness_is_the_distance_of_stored_rows_to_todays(retrieval_config, monkeypatch):
    """By hand, from the same rows embedded again."""
    seen = []

    def keep(module, slots):
        rows = embed_again(module, slots)
        stored = module.bank.embeddings[slots]
        seen.append(float((torch.nn.functional.normalize(stored, dim=1) - rows).norm(dim=1).mean()))
        return rows

    monkeypatch.setattr("adaptive_memory_bank.lab.training.watch.monitors.embed_again", keep)
    result = train.run(retrieval_config(adapter="identity", epochs=1))
    torch.testing.assert_close(result.metrics["bank/staleness"], seen[-1], rtol=1e-4, atol=1e-6)
    assert isinstance(StalenessMonitor(8).rows, int)
