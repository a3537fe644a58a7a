import inspect
import subprocess
import sys

import pytest
import timm
from pytorch_metric_learning import losses
from timm.models._registry import _model_entrypoints

from adaptive_memory_bank.lab.models import encoder  # noqa: F401  registers `conv4` with timm
from adaptive_memory_bank.lab.models.names import check_model, pml_losses, timm_models


def test_the_names_in_timms_sources_are_those_that_timm_knows_once_it_is_imported():
    assert set(timm_models()) == set(_model_entrypoints)
    assert {"conv4", "resnet50", "tf_efficientnet_lite0"} <= set(timm_models())


def test_the_names_in_pmls_sources_are_its_losses():
    classes = {name for name, kind in vars(losses).items() if inspect.isclass(kind) and name.endswith("Loss")}
    assert set(pml_losses()) == {name for name in classes if not name.startswith("Base")}


def test_names_with_tags_and_models_registered_later_are_known():
    check_model("resnet50.a1_in1k")

    @timm.models.register_model
    def tiny_of_mine(pretrained=False, **options):
        raise NotImplementedError

    check_model("tiny_of_mine")


def test_an_unknown_model_is_an_error_that_names_near_ones():
    with pytest.raises(
        ValueError, match=r"`model` must be `conv4` or a timm model .* got 'resnt50'. Did you mean resnet50"
    ):
        check_model("resnt50")


def test_reading_names_imports_neither_torch_nor_the_packages():
    code = "import sys; from adaptive_memory_bank.lab.models.names import pml_losses, timm_models; "
    code += "timm_models(), pml_losses(); "
    code += "print([m for m in ('torch', 'timm', 'pytorch_metric_learning') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
