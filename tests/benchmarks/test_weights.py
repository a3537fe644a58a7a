"""The package's weights find their places by order and shape."""

import pytest
import torch
from efficientnet_weights import renamed


def test_entries_keep_their_values_and_take_the_other_names():
    found = {"_a": torch.ones(2, 3), "_b": torch.zeros(4)}
    result = renamed(found, {"stem.weight": torch.empty(2, 3), "stem.bias": torch.empty(4)})
    assert list(result) == ["stem.weight", "stem.bias"]
    assert result["stem.weight"] is found["_a"]


@pytest.mark.parametrize("shapes", [[(4,), (2, 3)], [(2, 3)], [(2, 3), (5,)]])
def test_another_order_number_or_shape_is_refused(shapes):
    wanted = {"weight": torch.empty(2, 3), "bias": torch.empty(4)}
    with pytest.raises(ValueError, match=r"`found` must have the 2 shapes of tf_efficientnet_lite0, in order"):
        renamed({str(number): torch.empty(shape) for number, shape in enumerate(shapes)}, wanted)
