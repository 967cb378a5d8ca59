"""doap as an extractor of an unmodified hloc (Hierarchical-Localization)."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from doap._support.errors import ArgumentError
from doap.detectors import Detector
from doap.export.hloc import feature_arrays
from doap.extractor import MAX_KEYPOINTS, DescriptorSource
from doap.metrics import unit_vectors
from doap.pipeline import as_extractor

Conf = dict[str, Any]


def hloc_confs(
    descriptor: DescriptorSource = "doap-128",
    *,
    detector: str | Detector | None = None,
    max_keypoints: int = MAX_KEYPOINTS,
) -> tuple[Conf, Conf]:
    """Register a descriptor in hloc; return the configurations for its `extract_features` and `match_features`.

    >>> from hloc import extract_features, match_features  # doctest: +SKIP
    >>> features, matches = hloc_confs("doap-128")  # doctest: +SKIP
    >>> extract_features.main(features, images, outputs)  # doctest: +SKIP
    >>> match_features.main(matches, pairs, features["output"], outputs)  # doctest: +SKIP

    Images keep their size, and matching is hloc's mutual nearest neighbours with the descriptor's own ratio test.
    Bits become vectors of ±1/√D, because hloc compares dot products.

    Args:
        descriptor, detector, max_keypoints: See `doap.extract`.
    """
    try:
        extractors, base = import_module("hloc.extractors"), import_module("hloc.utils.base_model").BaseModel
    except ImportError as error:
        raise ArgumentError(
            f"hloc: expected an installed hloc, got none ({error}). Install it from its repository."
        ) from error
    extractor = as_extractor(descriptor, detector)
    # Distances of unit vectors of bits are square roots of Hamming distances.
    ratio = extractor.ratio ** (0.5 if extractor.kind == "binary" else 1)
    label = Path(descriptor).stem if isinstance(descriptor, str | Path) else extractor.name
    name = f"doap_{extractor.fingerprint()[:12]}"

    class Doap(base):  # type: ignore[misc, valid-type]
        required_inputs = ("image",)

        def _init(self, conf: Conf) -> None:
            """Everything is in the extractor."""

        def _forward(self, data: dict[str, Tensor]) -> dict[str, Tensor]:
            grey = (255 * data["image"][0, 0].clamp(0, 1)).round().byte().cpu().numpy()
            features = extractor.extract(grey, max_keypoints=self.conf["max_keypoints"])
            arrays = feature_arrays(features)
            if extractor.kind == "binary":
                arrays["descriptors"] = unit_vectors(features.descriptors.cpu()).T.numpy()
            return {key: torch.as_tensor(arrays[key])[None] for key in ("keypoints", "scores", "descriptors")}

    # hloc imports the module that the configuration names, and takes the class that it defines.
    module = ModuleType(f"{extractors.__name__}.{name}")
    Doap.__module__ = module.__name__
    vars(module)["Doap"] = Doap
    sys.modules[module.__name__] = module
    features = {
        "output": f"feats-{label}-n{max_keypoints}",
        "model": {"name": name, "max_keypoints": max_keypoints},
        "preprocessing": {"grayscale": True},
    }
    matches = {
        "output": f"matches-{label}-ratio{extractor.ratio:g}",
        "model": {"name": "nearest_neighbor", "do_mutual_check": True, "ratio_threshold": ratio},
    }
    return features, matches
