import base64
import io

import numpy as np
import torch
from PIL import Image

from adaptive_memory_bank.lab.data import Part
from adaptive_memory_bank.lab.training.worst_queries import gallery_table, render_gallery, worst_queries
from adaptive_memory_bank.metrics import score_queries

# On a line of angles: 0 and 1 are of class a and neighbours; 2 (b) lies next to 3 (a), far from 4 (b).
ANGLES = torch.tensor([0.0, 0.1, 1.0, 1.1, 3.0])
ROWS = torch.stack([ANGLES.cos(), ANGLES.sin()], dim=1)
LABELS = torch.tensor([0, 0, 1, 0, 1])


def part():
    images = np.zeros((5, 100, 80), np.uint8)
    return Part(images, LABELS, class_names=("a", "b"))


def test_the_worst_query_is_the_one_whose_class_comes_last():
    found = worst_queries(score_queries(ROWS, LABELS), ROWS, None)
    assert found["queries"][0] in (2, 4)
    row = found["queries"].index(2)
    assert found["matches"][row] == [3, 1, 0, 4]  # by angle; never the query itself
    assert found["first_match"][row] == 4
    assert found["scores"][row][0] == round(float(torch.cos(torch.tensor(0.1))), 4)


def test_a_gallery_is_searched_instead_of_the_queries():
    found = worst_queries(score_queries(ROWS[:1], LABELS[:1], ROWS, LABELS), ROWS[:1], ROWS)
    assert found["matches"][0] == [0, 1, 2, 3, 4]


def test_a_rendered_gallery_names_classes_and_holds_small_pictures():
    found = worst_queries(score_queries(ROWS, LABELS), ROWS, None)
    rendered = render_gallery(found, part(), None, epoch=3)
    assert rendered["epoch"] == 3
    query = next(query for query in rendered["queries"] if query["index"] == 2)
    assert query["class"] == "b"
    assert [(match["class"], match["correct"]) for match in query["matches"]] == [
        ("a", False),
        ("a", False),
        ("a", False),
        ("b", True),
    ]
    picture = Image.open(io.BytesIO(base64.b64decode(query["image"])))
    assert picture.size == (51, 64)  # 80 x 100, the longer side scaled to 64
    columns, rows = gallery_table(rendered)
    assert columns[:4] == ["query", "class", "first match", "nearest 1"]
    assert [len(row) for row in rows] == [len(columns)] * len(rows)
