"""Settings: pydantic models that reject unknown keys and values that are not finite, and classes selected by name."""

from __future__ import annotations

import difflib
import importlib
import reprlib
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from doap._support.errors import ArgumentError, DataError

UNKNOWN_NAME = "unknown_name"
"""Type of the validation error of a name that selects no class; its message is complete."""
Model = TypeVar("Model", bound="StrictModel")
Value = TypeVar("Value")
Selected = TypeVar("Selected")

FORBID_EXTRA = ConfigDict(extra="forbid")
"""Configuration of dataclasses that are read from files: `__pydantic_config__ = FORBID_EXTRA`."""


class StrictModel(BaseModel):
    """An immutable model that forbids unknown keys, NaN and infinity.

    A class of a registry (`LOSSES`, `SAMPLERS`, `NETWORKS`) has a subclass of it as its attribute `Settings`. That
    model is the schema of the recipe's section and the only home of the defaults.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @classmethod
    def check(cls: type[Model], **values: Any) -> Model:
        """Return the validated model, or raise an `ArgumentError` that names the first wrong value."""
        try:
            return cls(**values)
        except ValidationError as error:
            raise ArgumentError(explain(error, cls.model_fields)) from error


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def validate(kind: type[Value], value: object, source: object) -> Value:
    """Return a value from a file as the validated type, or raise a `DataError` that names the first wrong value.

    Args:
        kind: A dataclass or another type that pydantic can validate.
        value: Content of the file.
        source: The file and, where it helps, the line in it.
    """
    try:
        checked: Value = _adapter(kind).validate_python(value)  # type: ignore[arg-type]
    except ValidationError as error:
        known = getattr(kind, "__dataclass_fields__", ())
        raise DataError(f"{source}: {explain(error, known)}") from error
    return checked


def explain(error: ValidationError, known: Iterable[str]) -> str:
    """Describe the first fault of a validation in one line; an unknown key comes with the nearest known one.

    Args:
        error: The error that pydantic raised.
        known: Known keys of the model or section that has the fault.
    """
    fault = error.errors()[0]
    key = ".".join(str(part) for part in fault["loc"])
    if fault["type"] == UNKNOWN_NAME:
        return f"{key}: {fault['msg']}"
    if fault["type"] != "extra_forbidden":
        return f"{key}: {fault['msg'][0].lower()}{fault['msg'][1:]}, got {reprlib.repr(fault['input'])}"
    names = list(known)
    nearest = difflib.get_close_matches(str(fault["loc"][-1]), names, n=1)
    hint = f"did you mean {nearest[0]!r}?" if nearest else f"known keys are {', '.join(names)}"
    return f"unknown key {key!r}; {hint}"


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
