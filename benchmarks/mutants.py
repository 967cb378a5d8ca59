"""Small changes of Python code for benchmarks/mutation.py, as Cosmic Ray proposes them."""

from __future__ import annotations

import ast
import gc
import inspect
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any


@dataclass(frozen=True)
class Mutant:
    """A mutant of a source file; `line`, `original` and `mutated` describe the first line that differs."""

    file: Path
    operator: str
    code: str
    line: int
    original: str
    mutated: str

    def describe(self, package: Path) -> dict[str, Any]:
        """Return what a result stores of the mutant."""
        return {
            "file": str(self.file.relative_to(package)),
            "line": self.line,
            "operator": self.operator,
            "original": self.original,
            "mutated": self.mutated,
        }


@dataclass(frozen=True)
class Position:
    """A change that Cosmic Ray can make, between two lines of a file."""

    file: Path
    operator: str
    occurrence: int
    first: int
    last: int

    def mutate(self, code: str) -> Mutant | None:
        """Return the mutant, if it is valid Python and differs."""
        import cosmic_ray.plugins
        from cosmic_ray.mutating import mutate_code

        mutated = mutate_code(code, cosmic_ray.plugins.get_operator(f"core/{self.operator}")(), self.occurrence)
        try:
            if mutated is None or skeleton(mutated) == skeleton(code):
                return None
        except SyntaxError:
            return None
        return Mutant(self.file, self.operator, mutated, *first_change(code, mutated))


def find_positions(file: Path, code: str) -> list[Position]:
    """Return where Cosmic Ray can change a file, without annotations and docstrings."""
    import cosmic_ray.plugins
    from cosmic_ray.ast import ast_nodes, get_ast

    nodes = list(ast_nodes(get_ast(code)))
    ignored = [
        ((node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset))
        for node in annotations_and_docstrings(ast.parse(code))
    ]
    positions = []
    for name in cosmic_ray.plugins.operator_names():
        # These two operators need arguments that name variables.
        if name.startswith("core/Variable"):
            continue
        operator = cosmic_ray.plugins.get_operator(name)()
        spans = [span for node in nodes for span in operator.mutation_positions(node)]
        positions += [
            Position(file, name.removeprefix("core/"), occurrence, start[0], end[0])
            for occurrence, (start, end) in enumerate(spans)
            if not any(first <= start < last for first, last in ignored)
        ]
    return positions


def annotations_and_docstrings(tree: ast.Module) -> Iterator[Any]:
    """Yield the nodes of a syntax tree that do not change what the code does."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns:
            yield node.returns
        elif isinstance(node, ast.arg | ast.AnnAssign) and node.annotation:
            yield node.annotation
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.value


def skeleton(code: str) -> str:
    """Return a text of the syntax tree, which does not depend on the format of the code."""
    return ast.dump(ast.parse(code))


def first_change(original: str, mutated: str) -> tuple[int, str, str]:
    """Return the number of the first line that differs and its two versions."""
    for number, (old, new) in enumerate(zip(original.splitlines(), mutated.splitlines(), strict=False), start=1):
        if old != new:
            return number, old.strip(), new.strip()
    return 1, "", ""


def enclosing_function(code: str, line: int) -> tuple[int, int]:
    """Return the first and the last line of the innermost function around a line.

    Returns:
        (0, 0) outside of functions and in signatures: a call with wrong arguments does not reach the function.
    """
    innermost, body = (0, 0), 0
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            last = node.end_lineno or node.lineno
            if first <= line <= last and first > innermost[0]:
                innermost, body = (first, last), node.body[0].lineno
    return innermost if line >= body else (0, 0)


def changed_function(file: str, original: str, mutated: str) -> CodeType | None:
    """Return the new code of the only function or method that differs; None if anything else differs."""
    try:
        codes = [compile(code, file, "exec", dont_inherit=True) for code in (original, mutated)]
    except (SyntaxError, SyntaxWarning):
        return None
    (shell, old), (other_shell, new) = map(shell_and_functions, codes)
    changed = [name for name in old if old[name] != new.get(name)]
    return new[changed[0]] if shell == other_shell and len(changed) == 1 else None


def shell_and_functions(code: CodeType) -> tuple[object, dict[str, CodeType]]:
    """Split the code of a module or class into what runs at import and its functions by qualified name."""
    functions: dict[str, CodeType] = {}
    constants: list[object] = []
    for constant in code.co_consts:
        if not isinstance(constant, CodeType):
            constants.append((type(constant), repr(constant)))
        elif constant.co_flags & inspect.CO_OPTIMIZED:
            functions[constant.co_qualname] = constant
        else:
            shell, inner = shell_and_functions(constant)
            constants.append(shell)
            functions |= inner
    return (code.co_code, code.co_names, tuple(constants)), functions


def live_functions(package: Path) -> dict[tuple[str, str], list[FunctionType]]:
    """Return the functions of a package that exist in this process, by file and qualified name."""
    live = defaultdict(list)
    for value in gc.get_objects():
        if isinstance(value, FunctionType) and value.__code__.co_filename.startswith(str(package)):
            live[value.__code__.co_filename, value.__code__.co_qualname].append(value)
    return live
