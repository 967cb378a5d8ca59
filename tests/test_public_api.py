"""The public API: signatures without `Any`, and docstrings with shapes or an example."""

import inspect
import re

import pytest

import doap

NAMES = sorted(set(doap.__all__) - {"__version__"})
EACH = pytest.mark.parametrize("name", NAMES)
# Parameters that hold JSON values.
JSON = {"metadata", "arguments"}
SHAPE = re.compile(r"\((?:[A-Z]|\d)[^)\n]*,[^)\n]*\)")


def signatures(value):
    """Yield the name and signature of a function, or of the constructor and public methods of a class."""
    if not inspect.isclass(value):
        yield value.__name__, inspect.signature(value)
        return
    if not issubclass(value, Exception) and not getattr(value, "_is_protocol", False):
        yield "__init__", inspect.signature(value)
    for name, member in vars(value).items():
        function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        function = function.fget if isinstance(function, property) else function
        if not name.startswith("_") and inspect.isfunction(function):
            yield name, inspect.signature(function)


@EACH
def test_no_signature_contains_any(name):
    for part, signature in signatures(getattr(doap, name)):
        annotations = {one.name: one.annotation for one in signature.parameters.values() if one.name not in JSON}
        for argument, annotation in (annotations | {"return": signature.return_annotation}).items():
            assert not re.search(r"\bAny\b", str(annotation)), f"{name}.{part}: {argument}: {annotation}"


@EACH
def test_every_docstring_has_shapes_or_an_example(name):
    text = inspect.getdoc(getattr(doap, name)) or ""
    assert ">>> " in text or SHAPE.search(text), name


@EACH
def test_every_argument_of_a_function_is_documented(name):
    value = getattr(doap, name)
    if not inspect.isfunction(value):
        return
    text = inspect.getdoc(value) or ""
    missing = [
        argument for argument in inspect.signature(value).parameters if not re.search(rf"\b{argument}\b.*:", text)
    ]
    assert not missing
