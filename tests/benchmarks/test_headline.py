"""README's headline table is that of the committed results."""

from pathlib import Path

import headline
import markers

README = Path(__file__).parents[2] / "README.md"


def test_a_number_changed_by_hand_would_be_noticed(monkeypatch):
    found = {
        "name": headline.SOURCE, "complete": 2, "planned": 2, "seeds": [0], "epochs": [1],
        "tables": [
            {
                "setting": "Omniglot", "batch_size": 16, "metric": "val/recall@1", "picks": ["chosen", "last"],
                "rows": [
                    {"variant": "xbn", "values": {"chosen val/recall@1": {"mean": 0.5, "std": None}}, "difference": {}}
                ],
            }
        ],
    }  # fmt: skip
    monkeypatch.setattr(headline, "read", lambda name: found if name == headline.SOURCE else None)
    text = markers.filled(README.read_text(), headline.PARTS)
    assert "| `xbn` | 50.0 | - | - |" in text
    changed = text.replace("| 50.0 |", "| 51.0 |")
    assert markers.filled(changed, headline.PARTS) == text != changed


def test_other_comparisons_take_a_line_each_and_bold_is_beyond_the_noise(monkeypatch):
    def row(name, mean, beyond):
        difference = {} if beyond is None else {"last": {"mean": 0.1, "low": 0.0, "high": 0.2, "beyond_noise": beyond}}
        return {"variant": name, "values": {"last val/knn": {"mean": mean, "std": 0.01}}, "difference": difference}

    rows = [row("identity", 0.5, None), row("xbn", 0.52, False), row("auto", 0.6, True)]
    here = {"setting": "CIFAR-10", "condition": "15 epochs", "metric": "val/knn", "picks": ["last"], "rows": rows}
    found = {"name": headline.OTHERS[1], "seeds": [0, 1], "tables": [here]}
    monkeypatch.setattr(headline, "read", lambda name: found if name == headline.OTHERS[1] else None)
    *_, line = headline.others().splitlines()
    assert line == (
        "| [CIFAR-10](benchmarks/results/cifar_moco_same_image.md), 15 epochs, 2 seeds: kNN % "
        "| - | 50.0 ± 1.0 | 52.0 ± 1.0 | **60.0 ± 1.0** |"
    )
    monkeypatch.setattr(headline, "read", lambda name: None)
    assert headline.others() == ""
