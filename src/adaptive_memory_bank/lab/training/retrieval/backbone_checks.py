"""Complaints about a backbone's weights, before anything is downloaded."""

import os
from pathlib import Path

import timm

from adaptive_memory_bank.lab.models.encoder import EncoderOptions
from adaptive_memory_bank.lab.tracking.network import check_reachable

HUB_PATIENCE = 6.0  # seconds to wait for the model hub before saying that it cannot be reached


def check_backbone(config: EncoderOptions) -> None:
    """Raise for weights that cannot be had, before anything is downloaded."""
    if config.weights is not None:
        check_weights_file(config.weights)
    elif config.pretrained:
        check_weights_reachable(config.model)


def check_weights_file(path: str) -> None:
    """Raise for a file of weights that is not there."""
    if not Path(path).is_file():
        raise ValueError(f"`weights` must be a file with a backbone's weights, got {path!r}, which does not exist.")


def check_weights_reachable(model: str) -> None:
    """Raise within seconds when pretrained weights would have to be downloaded and cannot be."""
    source = timm.get_pretrained_cfg(model)
    if source is None or not source.has_weights:
        raise ValueError(f"timm has no pretrained weights for {model!r}. Use `--pretrained false` or `--weights FILE`.")
    if source.hf_hub_id and _is_cached(source.hf_hub_id):
        return
    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    address = endpoint if source.hf_hub_id else str(source.url)
    if os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0") or not _is_reachable(address):
        raise ValueError(
            f"No pretrained weights for {model!r}: they are not in the cache and {address} does not answer. "
            "Use `--weights FILE` (a state dict or safetensors file) or `--pretrained false` to train from scratch."
        )


def _is_cached(repository: str) -> bool:
    from huggingface_hub import try_to_load_from_cache

    names = ("model.safetensors", "pytorch_model.bin")
    return any(isinstance(try_to_load_from_cache(repository, name), str) for name in names)


def _is_reachable(address: str) -> bool:
    try:
        check_reachable(address, HUB_PATIENCE)
    except ConnectionError:
        return False
    return True
