"""doap as an extractor of an unmodified glue-factory: `name: doap.export.inside_gluefactory` in its configurations.

The options are `descriptor` and `detector`, as for `doap.extract`, and `max_num_keypoints`. The model returns

    keypoints (B, N, 2)     (x, y); the centre of the first pixel is at (0.5, 0.5), as in COLMAP
    descriptors (B, N, D)   unit vectors; bits become ±1/√D
    scales, oris (B, N)     σ of SIFT in pixels, and the orientation in radians
    keypoint_scores (B, N)  responses of the detector

N is the number of keypoints of the image that has most. The rows that another image of the batch lacks are zeros.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from doap.images import angles, scales
from doap.images.frames import COLMAP_PIXEL_CENTRE, SIFT_EXTENT
from doap.metrics import unit_vectors
from doap.pipeline import as_extractor


def __getattr__(name: str) -> type[Any]:
    """Define the model when glue-factory asks this module for it, because the base class is glue-factory's."""
    if name != "__main_model__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    base = import_module("gluefactory.models.base_model").BaseModel

    class Doap(base):  # type: ignore[misc, valid-type]
        default_conf = {"descriptor": "doap-128", "detector": None, "max_num_keypoints": 2048}  # noqa: RUF012
        required_data_keys = ["image"]  # noqa: RUF012

        def _init(self, conf: Any) -> None:
            self.extractor = as_extractor(conf["descriptor"], conf["detector"])

        def _forward(self, data: dict[str, Tensor]) -> dict[str, Tensor]:
            images = data["image"]
            # Pixels outside the size of an image are padding.
            sizes = data.get("image_size", [images.shape[:1:-1]] * len(images))
            found = [self._extract(image[:, : int(h), : int(w)]) for image, (w, h) in zip(images, sizes, strict=True)]
            return {key: pad_sequence([one[key] for one in found], True).to(images.device) for key in found[0]}

        def _extract(self, image: Tensor) -> dict[str, Tensor]:
            """Extract the features of an image (1 or 3, H, W) in 0…1, grey or as red, green, blue."""
            pixels = (255 * image.flip(0).clamp(0, 1)).round().byte().permute(1, 2, 0).cpu().numpy()
            features = self.extractor.extract(pixels, max_keypoints=self.conf["max_num_keypoints"])
            described = features.descriptors.cpu()
            return {
                "keypoints": torch.as_tensor(features.keypoints + COLMAP_PIXEL_CENTRE),
                "descriptors": unit_vectors(described) if self.extractor.kind == "binary" else described,
                "scales": torch.as_tensor(scales(features.frames) / SIFT_EXTENT),
                "oris": torch.as_tensor(np.radians(angles(features.frames))),
                "keypoint_scores": torch.as_tensor(features.responses),
            }

        def loss(self, pred: object, data: object) -> None:
            """Report that there is no loss, in glue-factory's way."""
            raise NotImplementedError

    return Doap
