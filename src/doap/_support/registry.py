"""Select a class by name: an entry of a registry, or a class of your own package."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TypeVar

from doap._support.errors import ArgumentError

Selected = TypeVar("Selected")


def select(registry: Mapping[str, type[Selected]], name: str, base: type[Selected]) -> type[Selected]:
    """Return the class with a name in a registry, or import the class `package.module:Class`.

    >>> from doap.networks import NETWORKS, PatchNetwork
    >>> select(NETWORKS, "doap.networks.l2net:L2Net", PatchNetwork) is select(NETWORKS, "l2net", PatchNetwork)
    True

    Args:
        registry: Classes by name.
        name: A key of the registry, or `package.module:Class`. The module runs when it is imported.
        base: Class that an imported class must inherit from.
    """
    if name in registry:
        return registry[name]
    module, colon, attribute = name.partition(":")
    if not colon:
        raise ArgumentError(f"expected one of {', '.join(registry)} or package.module:Class, got {name!r}.")
    try:
        found = getattr(importlib.import_module(module), attribute, None)
    # The module is the user's and can raise anything.
    except Exception as error:
        raise ArgumentError(
            f"{name!r} cannot be imported ({type(error).__name__}: {error}). "
            "Install its package, or add the folder of the module to PYTHONPATH."
        ) from error
    if not isinstance(found, type) or not issubclass(found, base):
        raise ArgumentError(
            f"{name!r}: expected a subclass of {base.__module__}.{base.__qualname__} in {module}, got {found!r}."
        )
    return found
