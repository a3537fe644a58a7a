"""README's headline table is that of the committed results."""

import headline
import markers


def test_readme_and_results_agree():
    text = headline.README.read_text()
    assert markers.filled(text, headline.PARTS) == text, "run `python benchmarks/headline.py`"


def test_a_number_changed_by_hand_would_be_noticed(monkeypatch):
    found = {
        "name": "omniglot", "complete": 2, "planned": 2, "seeds": [0], "epochs": [1],
        "tables": [
            {
                "setting": "Omniglot", "batch_size": 16, "metric": "val/recall@1", "picks": ["chosen", "last"],
                "rows": [
                    {"variant": "xbn", "values": {"chosen val/recall@1": {"mean": 0.5, "std": None}}, "difference": {}}
                ],
            }
        ],
    }  # fmt: skip
    monkeypatch.setattr(headline, "read", lambda name: found)
    text = markers.filled(headline.README.read_text(), headline.PARTS)
    assert "| `xbn` | 50.0 | - | - |" in text
    changed = text.replace("| 50.0 |", "| 51.0 |")
    assert markers.filled(changed, headline.PARTS) == text != changed
