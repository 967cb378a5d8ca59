"""Checks of arguments at the API boundary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from doap._support.errors import ArgumentError, ShapeError

if TYPE_CHECKING:
    from torch import Tensor


MAX_PATCH_SIZE = 1024
"""Largest side S of a patch in pixels."""
MAX_DIM = 65536
"""Largest number D of dimensions or bits of a descriptor."""


class HasShape(Protocol):
    """Anything with a `shape`: torch tensors, numpy arrays, memory maps."""

    @property
    def shape(self) -> Sequence[int]: ...


def check_shape(value: HasShape, pattern: str, *, name: str) -> dict[str, int]:
    """Check a shape against a pattern of axis letters and sizes; return the sizes of the letters.

    A letter that occurs twice stands for one size. Public functions check shapes once; inner loops
    do not.

    >>> import torch
    >>> check_shape(torch.zeros(4, 1, 32, 32), "B 1 S S", name="patches")
    {'B': 4, 'S': 32}
    >>> check_shape(torch.zeros(4, 32, 32), "B 1 S S", name="patches")
    Traceback (most recent call last):
        ...
    doap._support.errors.ShapeError: patches: expected (B, 1, S, S), got (4, 32, 32)
    """
    axes = pattern.split()
    shape = tuple(int(size) for size in value.shape)
    sizes: dict[str, int] = {}
    fits = len(axes) == len(shape) and all(
        size == int(axis) if axis.isdigit() else sizes.setdefault(axis, size) == size
        for axis, size in zip(axes, shape, strict=True)
    )
    if not fits:
        raise ShapeError(f"{name}: expected ({', '.join(axes)}), got {shape}")
    return sizes


def check_finite(values: Tensor, *, name: str, remedy: str = "") -> None:
    """Check that a tensor has neither NaN nor infinity.

    >>> import torch
    >>> check_finite(torch.tensor([[1.0, float("nan")], [0.0, 1.0]]), name="descriptors")
    Traceback (most recent call last):
        ...
    doap._support.errors.ArgumentError: descriptors: expected finite values, got NaN or infinity in 1 of 2 rows.
    """
    import torch

    # The sum of finite values may overflow; that of others is never finite. It takes a tenth of the time of the mask.
    if bool(torch.isfinite(values.detach().sum())):
        return
    finite = torch.isfinite(values.detach())
    if not bool(finite.all()):
        wrong = len(values) - int(finite.flatten(1).all(1).sum()) if values.ndim > 1 else int((~finite).sum())
        found = f"NaN or infinity in {wrong} of {len(values)} rows"
        raise ArgumentError(f"{name}: expected finite values, got {found}. {remedy}".rstrip())


def check_choice(value: str, allowed: Sequence[str], *, name: str) -> None:
    """Check that an argument has one of the allowed values."""
    if value not in allowed:
        raise ArgumentError(f"{name}: expected one of {', '.join(allowed)}, got {value!r}")
