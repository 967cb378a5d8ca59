"""Networks from patches (B, 1, S, S) to descriptors (B, D)."""

from doap.networks.fast import FastNet
from doap.networks.l2net import L2Net
from doap.networks.network import PatchNetwork
from doap.networks.spatial_transformer import L2NetST, SpatialTransformer, parameter_groups

NETWORKS: dict[str, type[PatchNetwork]] = {"l2net": L2Net, "l2net-st": L2NetST, "fast": FastNet}
"""Networks by name; `NETWORKS[name](kind=kind, **settings)` creates one with random weights."""

__all__ = ["NETWORKS", "FastNet", "L2Net", "L2NetST", "PatchNetwork", "SpatialTransformer", "parameter_groups"]
