"""Damage files reproducibly: bytes of any file, and values inside the structure of known formats."""

from __future__ import annotations

import io
import json
import random
import re
import struct
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch

VALUES = [None, [], {}, -1, 0, 1e308, "x", "", float("nan"), 10**30, [1], {"a": 1}, "../../secret", True, "\x1b[31m\0"]
WORDS = [b"-1", b"", b"nan", b"1e308", b"99999999999999999999", b"\xff\xfe", b"x" * 500, b"\0", b"[", b"{}", b"../../x"]
NUMBERS = [0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 60, (1 << 64) - 1]
_WORD = re.compile(rb"[\w.+-]+")


def damage(name: str, content: bytes, generator: random.Random) -> bytes:
    """Return a damaged copy of the content of a file; `name` selects the mutations of its structure."""
    structured = next((change for suffix, change in _STRUCTURES.items() if name.endswith(suffix)), None)
    if structured and generator.random() < 0.5:
        content = structured(content, generator)
        if generator.random() < 0.8:
            return content
    return _BYTES[generator.randrange(len(_BYTES))](content, generator)


def _flip(content: bytes, generator: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(generator.choice([1, 3, 16, 64]) if changed else 0):
        # Headers are more interesting than the data behind them.
        end = len(changed) if generator.random() < 0.7 else min(len(changed), 512)
        changed[generator.randrange(end)] = generator.randrange(256)
    return bytes(changed)


def _truncate(content: bytes, generator: random.Random) -> bytes:
    return content[: generator.randrange(len(content) + 1)]


def _move(content: bytes, generator: random.Random) -> bytes:
    """Remove, repeat, clear or overwrite a part."""
    start, end = sorted(generator.randrange(len(content) + 1) for _ in range(2))
    if generator.random() < 0.7:
        end = min(end, start + generator.choice([1, 4, 8, 64]))
    part = content[start:end]
    other = generator.randrange(len(content) + 1)
    inserted = generator.choice([b"", part * 2, bytes(len(part)), content[other : other + len(part)]])
    return content[:start] + inserted + content[end:]


def _number(content: bytes, generator: random.Random) -> bytes:
    """Overwrite an integer of one to eight bytes with an extreme value."""
    size, order = generator.choice([1, 2, 4, 8]), generator.choice(["little", "big"])
    value = generator.choice(NUMBERS) & ((1 << 8 * size) - 1)
    start = generator.randrange(max(len(content) - size, 1))
    return content[:start] + value.to_bytes(size, order) + content[start + size :]  # type: ignore[arg-type]


def _word(content: bytes, generator: random.Random) -> bytes:
    """Replace a word of a text."""
    found = list(_WORD.finditer(content))
    if not found:
        return _flip(content, generator)
    word = generator.choice(found)
    return content[: word.start()] + generator.choice(WORDS) + content[word.end() :]


def _lines(content: bytes, generator: random.Random) -> bytes:
    """Remove, repeat or exchange lines of a text."""
    lines = content.split(b"\n")
    first, second = generator.randrange(len(lines)), generator.randrange(len(lines))
    if generator.random() < 0.3:
        del lines[first]
    elif generator.random() < 0.5:
        lines.insert(second, lines[first])
    else:
        lines[first], lines[second] = lines[second], lines[first]
    return b"\n".join(lines)


def _text(content: bytes, generator: random.Random) -> bytes:
    return generator.choice([_word, _lines])(content, generator)


def change_value(root: Any, generator: random.Random) -> None:
    """Replace or remove a value somewhere inside a dictionary or list."""
    inner = root
    while inner:
        key = generator.choice(list(inner) if isinstance(inner, dict) else range(len(inner)))
        if not isinstance(inner[key], dict | list) or not inner[key] or generator.random() < 0.3:
            if generator.random() < 0.2:
                del inner[key]
            else:
                inner[key] = generator.choice(VALUES)
            return
        inner = inner[key]


def _json(content: bytes, generator: random.Random) -> bytes:
    root = json.loads(content)
    change_value(root, generator)
    return json.dumps(root).encode()


def _json_lines(content: bytes, generator: random.Random) -> bytes:
    lines = content.splitlines()
    chosen = generator.randrange(len(lines))
    lines[chosen] = _json(lines[chosen], generator)
    return b"\n".join(lines) + b"\n"


def _safetensors(content: bytes, generator: random.Random) -> bytes:
    """Change a value of the header, or of the JSON texts in its metadata, and keep its length valid."""
    (length,) = struct.unpack_from("<Q", content)
    header = json.loads(content[8 : 8 + length])
    metadata = header.get("__metadata__", {})
    texts = [key for key in metadata if metadata[key].startswith("{")]
    if texts and generator.random() < 0.6:
        key = generator.choice(texts)
        metadata[key] = _json(metadata[key].encode(), generator).decode()
    else:
        change_value(header, generator)
    changed = json.dumps(header).encode()
    return struct.pack("<Q", len(changed)) + changed + content[8 + length :]


def _checkpoint(content: bytes, generator: random.Random) -> bytes:
    state = torch.load(io.BytesIO(content), weights_only=True)
    change_value(state, generator)
    out = io.BytesIO()
    torch.save(state, out)
    return out.getvalue()


def _parquet(content: bytes, generator: random.Random) -> bytes:
    """Change values, rows or columns of a table."""
    table = pq.read_table(pa.BufferReader(content))
    kind, column = generator.randrange(4), generator.randrange(table.num_columns)
    if kind == 0:
        table = table.slice(0, generator.randrange(table.num_rows + 1))
    elif kind == 1:
        table = pa.concat_tables([table, table])
    elif kind == 2:
        table = table.remove_column(column)
    else:
        values, field = table[column].to_pylist(), table.schema.field(column)
        if values:
            values[generator.randrange(len(values))] = generator.choice([*VALUES, *values])
        try:
            table = table.set_column(column, field, pa.array(values, field.type))
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            table = table.set_column(column, field.name, pa.nulls(table.num_rows))
    out = io.BytesIO()
    pq.write_table(table, out)
    return out.getvalue()


_BYTES: list[Callable[[bytes, random.Random], bytes]] = [_flip, _flip, _truncate, _move, _number]
_STRUCTURES: dict[str, Callable[[bytes, random.Random], bytes]] = {
    ".json": _json,
    ".jsonl": _json_lines,
    ".safetensors": _safetensors,
    ".pt": _checkpoint,
    ".parquet": _parquet,
    **dict.fromkeys((".toml", ".csv", ".txt", "H1to2p", "H1to3p"), _text),
}
