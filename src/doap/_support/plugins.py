"""Entry points: names that installed packages add to the registries of doap."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import TypeVar

from doap._support.checks import check_choice
from doap._support.errors import DataError

T = TypeVar("T")


def registered(registry: Mapping[str, T], kind: str, name: str) -> T:
    """Return an entry of a registry, or the one that an installed package has in the group `doap.KINDs`.

    Call it only with a name that the user gave, never with one from a file: it runs the code of the package. An entry
    of the registry cannot be replaced.

    >>> registered({"sift": 1}, "detector", "sift")
    1

    Args:
        registry: Entries by name.
        kind: descriptor, detector or benchmark.
        name: Name of the entry.
    """
    if name in registry:
        return registry[name]
    added = entry_points(group=f"doap.{kind}s")
    check_choice(name, [*registry, *sorted(added.names)], name=kind)
    found = added.select(name=name)
    packages = " and ".join(sorted(one.dist.name for one in found if one.dist))
    if len(found) > 1:
        raise DataError(f"{kind} {name}: {packages} both have this name. Uninstall one of them.")
    try:
        entry: T = found[name].load()
    # The code of the package can raise anything.
    except Exception as error:
        raise DataError(
            f"{kind} {name}: the package {packages} cannot be imported ({type(error).__name__}: {error}). "
            "Update or uninstall it."
        ) from error
    if not callable(entry):
        raise DataError(f"{kind} {name}: expected a function or class in the package {packages}, got {entry!r}.")
    return entry
