"""Networks from patches (B, 1, S, S) to descriptors (B, D)."""

from torch import nn

from doap.networks.l2net import L2Net
from doap.networks.spatial_transformer import L2NetST, SpatialTransformer, parameter_groups

NETWORKS: dict[str, type[nn.Module]] = {"l2net": L2Net, "l2net-st": L2NetST}

__all__ = ["NETWORKS", "L2Net", "L2NetST", "SpatialTransformer", "parameter_groups"]
