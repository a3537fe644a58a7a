"""The model of a bank on several ranks, against what ranks really sent and held."""

import measure
import pytest
from scaling import BILLION, setting
from scaling_model import Setting, bytes_held, bytes_sent, multiplications

CASES = [case for case in measure.read("scaling")["cases"] if case["ranks"] > 1]
cases = pytest.mark.parametrize("case", CASES, ids=lambda case: "{loss}, {layout}, {ranks} ranks".format(**case))


@cases
def test_ranks_sent_what_the_model_says_and_headers(case):
    model = sum(bytes_sent(setting(case["loss"], case["layout"], case["ranks"])).values())
    assert model <= case["sent_per_rank"] <= 1.15 * model


@cases
def test_ranks_held_their_rows_and_a_constant(case):
    at = setting(case["loss"], case["layout"], case["ranks"])
    assert bytes_held(at) <= case["held"] <= bytes_held(at) + 100 * at.dim


def test_a_model_without_gradients_would_be_noticed():
    case = next(case for case in CASES if (case["loss"], case["layout"]) == ("supcon", "shard"))
    parts = bytes_sent(setting("supcon", "shard", case["ranks"]))
    assert case["sent_per_rank"] > 1.15 * (sum(parts.values()) - parts["gradients"])


@pytest.mark.parametrize("loss", ["supcon", "infonce"])
def test_layouts_multiply_alike_and_what_they_send_does_not_depend_on_the_rows(loss):
    replicated, sharded = (Setting(loss, layout, **BILLION) for layout in ("replicate", "shard"))
    assert multiplications(replicated) == multiplications(sharded)
    assert bytes_held(replicated) == 64 * bytes_held(sharded)
    few = Setting(loss, "shard", **{**BILLION, "rows": 64})
    assert bytes_sent(sharded) == bytes_sent(few)
