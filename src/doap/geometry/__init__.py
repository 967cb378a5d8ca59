"""Which matches agree on one geometry of two images."""

from doap.geometry.estimate import Model, estimate

__all__ = ["Model", "estimate"]
