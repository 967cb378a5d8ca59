"""SIFT's keypoints and their patches as nodes of an ONNX graph.

The steps are those of Lowe (2004) with the choices of OpenCV, which `doap.detectors.sift` runs: a doubled image, three
levels per octave, extrema among 3×3×3 samples, a quadratic fit that moves to a neighbouring sample where it should,
thresholds for contrast and edges, and all peaks of a histogram of 36 orientations. Patches are sampled as by
`doap.images.extract_patches`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

Value = str
"""Name of a value in the graph."""
Floats = NDArray[np.float32]

LEVELS, OCTAVES, SIGMA = 3, 6, 1.6
CONTRAST, EDGE, BORDER, FITS = 0.02, 10.0, 5, 5
BINS, PEAK = 36, 0.8
# Points of the orientation window on each side of the keypoint, and their distance in σ.
REACH, SPACING = 9, 0.5
PYRAMID_LEVELS = 12
# Gaussian kernels reach so many σ.
_TRUNCATE = 3.7
_END = 2**31 - 1
_TINY = 1e-20


def _central_differences() -> tuple[NDArray[np.int64], Floats]:
    """Return 19 neighbours (level, row, column) of a sample, and the weights (19, 10) of what is computed from them.

    These are the value, the three first derivatives, and the second ones by ss, sy, sx, yy, yx and xx.
    """
    neighbours = [one for one in itertools.product((-1, 0, 1), repeat=3) if np.count_nonzero(one) < 3]
    weights = np.zeros((len(neighbours), 10), np.float32)
    for row, one in enumerate(neighbours):
        moved = np.flatnonzero(one)
        if not len(moved):
            weights[row, [0, 4, 7, 9]] = [1, -2, -2, -2]
        elif len(moved) == 1:
            weights[row, 1 + moved[0]], weights[row, (4, 7, 9)[moved[0]]] = one[moved[0]] / 2, 1
        else:
            weights[row, {(0, 1): 5, (0, 2): 6, (1, 2): 8}[tuple(moved.tolist())]] = (
                np.prod(one, where=np.array(one) != 0) / 4
            )
    return np.array(neighbours), weights


NEIGHBOURS, DERIVATIVES = _central_differences()


@dataclass
class Graph:
    """Nodes of a graph: `graph(op, *inputs)` adds one and returns its output; numbers and arrays become constants."""

    nodes: list[Any] = field(default_factory=list)
    constants: dict[tuple[str, tuple[int, ...], bytes], Any] = field(default_factory=dict)

    def __call__(self, op: str, *inputs: Any, **attributes: Any) -> Value:
        return self.several(1, op, *inputs, **attributes)[0]

    def several(self, count: int, op: str, *inputs: Any, **attributes: Any) -> list[Value]:
        """Add a node with several outputs."""
        from onnx import helper

        names = [one if isinstance(one, str) else self.constant(one) for one in inputs]
        outputs = [f"v{len(self.nodes)}_{number}" for number in range(count)]
        self.nodes.append(helper.make_node(op, names, outputs, **attributes))
        return outputs

    def cut(self, value: Value, axes: Sequence[int], begin: Sequence[int], end: Sequence[int], step: int = 1) -> Value:
        """Return a slice."""
        return self("Slice", value, list(begin), list(end), list(axes), [step] * len(axes))

    def size(self, value: Value, axis: int) -> Value:
        """Return the length (1,) of an axis."""
        return self("Shape", value, start=axis, end=axis + 1)

    def float(self, value: Value) -> Value:
        """Convert to float32."""
        return self("Cast", value, to=1)

    def integer(self, value: Value) -> Value:
        """Round to int64."""
        return self("Cast", self("Round", value), to=7)

    def column(self, value: Value) -> Value:
        """Return (n,) as (n, 1)."""
        return self("Unsqueeze", value, [1])

    def where(self, condition: Value) -> Value:
        """Return the indices (n,) at which a condition (N,) is true."""
        return self("Squeeze", self("NonZero", condition), [0])

    def total(self, *values: Value) -> Value:
        """Return a sum."""
        return values[0] if len(values) == 1 else self("Add", values[0], self.total(*values[1:]))

    def constant(self, value: Any) -> Value:
        """Return the name of a constant, in float32 or int64."""
        from onnx import numpy_helper

        array = np.asarray(value)
        array = array.astype(np.float32 if array.dtype.kind == "f" else np.int64)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self.constants:
            self.constants[key] = numpy_helper.from_array(array, f"c{len(self.constants)}")
        name: Value = self.constants[key].name
        return name


def grey_of(g: Graph, image: Value) -> Value:
    """Return the grey image (1, 1, H, W) in whole grey levels / 255 of a colour image (1, 3, H, W) in 0…1."""
    weights = np.array([0.299, 0.587, 0.114], np.float32).reshape(1, 3, 1, 1)
    return g("Div", g("Round", g("Mul", g("Conv", image, weights), 255.0)), 255.0)


def scale_space(g: Graph, grey: Value) -> list[Value]:
    """Return the Gaussian levels (1, 6, h, w) of each octave, the doubled image first."""
    scales = [SIGMA * 2 ** (level / LEVELS) for level in range(LEVELS + 3)]
    doubled = g("Resize", grey, "", [1.0, 1.0, 2.0, 2.0], mode="linear", coordinate_transformation_mode="asymmetric")
    # The image has a blur of half a pixel, the doubled one of a whole one.
    octaves = [_blurs(g, doubled, [math.sqrt(scale**2 - 1) for scale in scales])]
    while len(octaves) < OCTAVES:
        base = g.cut(octaves[-1], [1], [LEVELS], [LEVELS + 1])
        base = g.cut(base, [2, 3], [0, 0], [_END, _END], 2)
        added = _blurs(g, base, [math.sqrt(scale**2 - SIGMA**2) for scale in scales[1:]])
        octaves.append(g("Concat", base, added, axis=1))
    return octaves


def _blurs(g: Graph, image: Value, sigmas: Sequence[float]) -> Value:
    """Blur an image (1, 1, h, w) with several Gaussians: (1, n, h, w)."""
    reach = math.ceil(_TRUNCATE * max(sigmas))
    x = np.arange(-reach, reach + 1)
    kernels = np.stack(
        [np.exp(-(x**2) / (2 * sigma**2)) * (abs(x) <= math.ceil(_TRUNCATE * sigma)) for sigma in sigmas]
    )
    kernels /= kernels.sum(axis=1, keepdims=True)
    padded = g("Pad", image, [0, 0, reach, reach, 0, 0, reach, reach], mode="edge")
    return g("Conv", g("Conv", padded, kernels[:, None, None]), kernels[:, None, :, None], group=len(sigmas))


def detect(g: Graph, octaves: Sequence[Value]) -> Value:
    """Return the blobs (n, 4) of all octaves: x, y and σ in pixels of the image, and 5·octave + level."""
    stacks, extrema, begin = [], [], g.constant([0])
    for number, levels in enumerate(octaves):
        stack = g("Sub", g.cut(levels, [1], [1], [LEVELS + 3]), g.cut(levels, [1], [0], [LEVELS + 2]))
        found = _extrema(g, stack)
        octave = g("Concat", begin, g.size(stack, 2), g.size(stack, 3), [number], axis=0)
        repeated = g("Expand", octave, g("Concat", g.size(found, 0), [4], axis=0))
        extrema.append(g("Concat", found, repeated, axis=1))
        stacks.append(g("Reshape", stack, [-1]))
        begin = g("Add", begin, g.size(stacks[-1], 0))
    samples, offsets, octave, stable = _fit(g, g("Concat", *stacks, axis=0), g("Concat", *extrema, axis=0))
    level, y, x = (g("Add", g.float(one), offset) for one, offset in zip(samples, offsets, strict=True))
    step = g("Pow", 2.0, g("Sub", g.float(octave), 1.0))
    sigma = g("Mul", g("Pow", 2.0, g("Mul", level, 1 / LEVELS)), SIGMA)
    index = g.float(g("Add", samples[0], g("Mul", octave, LEVELS + 2)))
    columns = [*(g("Mul", one, step) for one in (x, y, sigma)), index]
    return g("Compress", g("Concat", *map(g.column, columns), axis=1), stable, axis=0)


def _extrema(g: Graph, stack: Value) -> Value:
    """Return level, row and column (n, 3) of the extrema of differences of Gaussians (1, 5, h, w)."""

    def largest(values: Value) -> Value:
        pooled = g("MaxPool", g("Unsqueeze", values, [1]), kernel_shape=[3, 3, 3], pads=[0, 1, 1, 0, 1, 1])
        return g("Squeeze", pooled, [1])

    middle, lowest = g.cut(stack, [1], [1], [LEVELS + 1]), g("Neg", largest(g("Neg", stack)))
    # OpenCV compares with whole grey levels.
    threshold = math.floor(0.5 * CONTRAST / LEVELS * 255) / 255
    high = g("And", g("Greater", middle, threshold), g("GreaterOrEqual", middle, largest(stack)))
    low = g("And", g("Less", middle, -threshold), g("LessOrEqual", middle, lowest))
    inside = g.cut(g("Or", high, low), [2, 3], [BORDER, BORDER], [-BORDER, -BORDER])
    found = g("Transpose", g("NonZero", inside), perm=[1, 0])
    return g("Add", g.cut(found, [1], [1], [4]), [[1, BORDER, BORDER]])


def _fit(g: Graph, values: Value, extrema: Value) -> tuple[list[Value], list[Value], Value, Value]:
    """Fit quadratic functions to the neighbourhoods of samples, and move to their extrema.

    Args:
        g: The graph.
        values: Differences of Gaussians of all octaves, one after the other.
        extrema: (n, 7): level, row, column; where the octave begins in `values`, its height, its width and its number.

    Returns:
        Level, row and column (n,) of the samples, the offsets (n,) of the extrema from them, the octaves (n,), and
        whether they are stable blobs (n,).
    """
    level, y, x, begin, height, width, octave = _columns(g, extrema, 7)
    at, plane = [level, y, x], g("Mul", height, width)
    limits = [([1], [LEVELS]), *(([BORDER], g("Sub", side, BORDER + 1)) for side in (height, width))]
    rows = [g("Mul", g.column(stride), row) for stride, row in zip((plane, width), NEIGHBOURS.T[:2, None], strict=True)]
    steps = g("Add", g("Add", *rows), NEIGHBOURS.T[2, None])
    for number in range(FITS):
        index = g.total(begin, g("Mul", at[0], plane), g("Mul", at[1], width), at[2])
        around = g("Gather", values, g("Add", g.column(index), steps))
        value, *derivatives = _columns(g, g("MatMul", around, DERIVATIVES), DERIVATIVES.shape[1])
        gradient, hessian = derivatives[:3], derivatives[3:]
        offsets, minor = _solve(g, gradient, hessian)
        if number + 1 < FITS:
            moved = [
                g("Add", one, g.integer(g("Clip", step, -1.0, 1.0))) for one, step in zip(at, offsets, strict=True)
            ]
            at = [g("Max", g("Min", one, high), low) for one, (low, high) in zip(moved, limits, strict=True)]
    change = g.total(*(g("Mul", *pair) for pair in zip(gradient, offsets, strict=True)))
    trace = g("Add", hessian[3], hessian[5])
    rules = [g("Less", g("Abs", offset), 0.5) for offset in offsets]
    rules.append(g("GreaterOrEqual", g("Abs", g("Add", value, g("Mul", change, 0.5))), CONTRAST / LEVELS))
    rules.append(g("Greater", minor, 0.0))
    rules.append(g("Less", g("Mul", g("Mul", trace, trace), EDGE), g("Mul", minor, (EDGE + 1) ** 2)))
    return at, offsets, octave, reduce(partial(g, "And"), rules)


def _columns(g: Graph, table: Value, number: int) -> list[Value]:
    """Return the columns (n,) of a table (n, number)."""
    return [g("Squeeze", one, [1]) for one in g.several(number, "Split", table, axis=1, num_outputs=number)]


def _solve(g: Graph, gradient: Sequence[Value], hessian: Sequence[Value]) -> tuple[list[Value], Value]:
    """Return −H⁻¹ · gradient of symmetric 3×3 matrices by their adjugate, and the minor of row and column."""

    def minor(one: Value, two: Value, three: Value, four: Value) -> Value:
        return g("Sub", g("Mul", one, two), g("Mul", three, four))

    ss, sy, sx, yy, yx, xx = hessian
    first = [minor(yy, xx, yx, yx), minor(sx, yx, sy, xx), minor(sy, yx, sx, yy)]
    second = [minor(ss, xx, sx, sx), minor(sy, sx, ss, yx), minor(ss, yy, sy, sy)]
    determinant = g.total(*(g("Mul", *pair) for pair in zip((ss, sy, sx), first, strict=True)))
    divisor = g("Where", g("Less", g("Abs", determinant), _TINY), _TINY, determinant)
    rows = [first, [first[1], second[0], second[1]], [first[2], second[1], second[2]]]
    sums = [g.total(*(g("Mul", *pair) for pair in zip(row, gradient, strict=True))) for row in rows]
    return [g("Neg", g("Div", one, divisor)) for one in sums], first[0]


def sample(g: Graph, image: Value, x: Value, y: Value) -> Value:
    """Sample an image (1, 1, h, w) at positions (n, m) in its pixels, bilinearly and with a repeated border: (n, m)."""

    def relative(position: Value, axis: int) -> Value:
        last = g("Max", g("Sub", g.float(g.size(image, axis)), 1.0), 1.0)
        return g("Unsqueeze", g("Sub", g("Mul", g("Div", position, last), 2.0), 1.0), [2])

    grid = g("Unsqueeze", g("Concat", relative(x, 3), relative(y, 2), axis=2), [0])
    sampled = g("GridSample", image, grid, mode="bilinear", padding_mode="border", align_corners=1)
    return g("Squeeze", sampled, [0, 1])


def _put_back(g: Graph, parts: Sequence[Value], rows: Sequence[Value], count: Value, width: int) -> Value:
    """Return a table (count, width) with parts (n, width) at their rows (n,)."""
    empty = g("Expand", 0.0, g("Concat", count, [width], axis=0))
    return g("ScatterND", empty, g.column(g("Concat", *rows, axis=0)), g("Concat", *parts, axis=0))


def orientations(g: Graph, octaves: Sequence[Value], blobs: Value) -> tuple[Value, Value]:
    """Return row (m,) and clockwise angle (m,) in radians of all orientations of blobs (n, 4)."""
    x, y, sigma, number = (g("Gather", blobs, column, axis=1) for column in range(4))
    points = 2 * REACH + 3
    offsets = (SPACING * (np.arange(points) - REACH - 1)).astype(np.float32)
    right, down = (grid.reshape(1, -1) for grid in np.meshgrid(offsets, offsets))
    parts, rows = [], []
    for octave, levels in enumerate(octaves):
        for level in range(1, LEVELS + 1):
            chosen = g.where(g("Equal", number, float(octave * (LEVELS + 2) + level)))
            at_x, at_y, step = (
                g.column(g("Div", g("Gather", one, chosen), 2.0 ** (octave - 1))) for one in (x, y, sigma)
            )
            positions = (g("Add", one, g("Mul", step, grid)) for one, grid in ((at_x, right), (at_y, down)))
            parts.append(sample(g, g.cut(levels, [1], [level], [level + 1]), *positions))
            rows.append(chosen)
    window = _put_back(g, parts, rows, g.size(blobs, 0), points**2)
    return _peaks(g, _histogram(g, g("Reshape", window, [-1, points, points]), g.size(blobs, 0)))


def _histogram(g: Graph, window: Value, count: Value) -> Value:
    """Return smooth histograms (n, 36) of the gradient orientations in windows (n, 21, 21)."""
    last, samples = 2 * REACH + 3, (2 * REACH + 1) ** 2

    def difference(axis: int) -> Value:
        other = 3 - axis
        ends = [g.cut(window, [axis, other], [begin, 1], [last - 2 + begin, last - 1]) for begin in (2, 0)]
        return g("Reshape", g("Sub", *ends), [-1, samples])

    dx, dy = difference(2), difference(1)
    r = SPACING * np.arange(-REACH, REACH + 1)
    weights = np.exp(-(r[:, None] ** 2 + r**2) / (2 * 1.5**2)).reshape(1, -1)
    strength = g("Mul", g("Sqrt", g("Add", g("Mul", dx, dx), g("Mul", dy, dy))), weights)
    # ONNX has no atan2.
    divisor = g("Where", g("Less", g("Abs", dx), 1e-12), 1e-12, dx)
    half_turn = g("Where", g("Less", divisor, 0.0), math.pi, 0.0)
    angle = g("Add", g("Atan", g("Div", dy, divisor)), half_turn)
    bins = g("Mod", g.integer(g("Mul", angle, BINS / (2 * math.pi))), BINS)
    empty = g("Expand", 0.0, g("Concat", count, [BINS], axis=0))
    counts = g("ScatterElements", empty, bins, strength, axis=1, reduction="add")
    kernel = np.array([1, 4, 6, 4, 1]).reshape(1, 1, 5) / 16
    return g("Squeeze", g("Conv", g("Unsqueeze", _ring(g, counts, 2), [1]), kernel), [1])


def _ring(g: Graph, histogram: Value, more: int) -> Value:
    """Repeat bins of circular histograms (n, 36) on both sides."""
    return g(
        "Concat", g.cut(histogram, [1], [BINS - more], [BINS]), histogram, g.cut(histogram, [1], [0], [more]), axis=1
    )


def _peaks(g: Graph, histogram: Value) -> tuple[Value, Value]:
    """Return row (m,) and angle (m,) in radians of all local maxima that reach `PEAK` of the highest."""
    around = _ring(g, histogram, 1)
    left, right = (g.cut(around, [1], [begin], [begin + BINS]) for begin in (0, 2))
    highest = g("ReduceMax", histogram, [1], keepdims=1)
    is_peak = g("And", g("Greater", histogram, left), g("Greater", histogram, right))
    is_peak = g("And", is_peak, g("GreaterOrEqual", histogram, g("Mul", highest, PEAK)))
    found = g("NonZero", is_peak)
    row, number = (g("Squeeze", one, [0]) for one in g.several(2, "Split", found, axis=0, num_outputs=2))
    before, here, after = (g("GatherND", one, g("Transpose", found, perm=[1, 0])) for one in (left, histogram, right))
    curvature = g("Sub", g("Add", before, after), g("Mul", here, 2.0))
    offset = g("Div", g("Mul", g("Sub", before, after), 0.5), curvature)
    return row, g("Mul", g("Add", g.float(number), offset), 2 * math.pi / BINS)


def cut_patches(g: Graph, grey: Value, frames: Sequence[Value], side: int, extent: float) -> Value:
    """Return patches (n, S²) in whole grey levels / 255 of frames (n,): x, y, σ in pixels, and angle in radians."""
    x, y, sigma, angle = frames
    half = g("Mul", sigma, 6 * extent)
    step = g("Max", g("Mul", half, 2 / side), 1.0)
    level = g("Min", g("Round", g("Mul", g("Log", step), 2 / math.log(2))), float(PYRAMID_LEVELS - 1))
    u = (2 * np.arange(side) + 1) / side - 1
    right, down = (grid.reshape(1, -1) for grid in np.meshgrid(u, u))
    cos, sin = (g.column(g("Mul", g(op, angle), half)) for op in ("Cos", "Sin"))
    at_x = g("Add", g.column(x), g("Sub", g("Mul", cos, right), g("Mul", sin, down)))
    at_y = g("Add", g.column(y), g("Add", g("Mul", sin, right), g("Mul", cos, down)))
    parts, rows, image = [], [], grey
    for number in range(PYRAMID_LEVELS):
        image = _coarser(g, image, halve=number % 2 == 0) if number else grey
        chosen = g.where(g("Equal", level, float(number)))
        positions = (g("Div", g("Gather", one, chosen), float(1 << number // 2)) for one in (at_x, at_y))
        parts.append(sample(g, image, *positions))
        rows.append(chosen)
    sampled = _put_back(g, parts, rows, g.size(x, 0), side * side)
    return g("Div", g("Round", g("Mul", sampled, 255.0)), 255.0)


def _coarser(g: Graph, image: Value, *, halve: bool) -> Value:
    """Return the next level of the pyramid of `doap.images.Pyramid`."""
    sigma = 0.5 * math.sqrt(2) if halve else 0.5
    kernel = np.exp(-(np.arange(-2, 3) ** 2) / (2 * sigma**2))
    kernel /= kernel.sum()
    padded = g("Pad", image, [0, 0, 2, 2, 0, 0, 2, 2], mode="edge")
    blurred = g("Conv", g("Conv", padded, kernel.reshape(1, 1, 1, 5)), kernel.reshape(1, 1, 5, 1))
    if not halve:
        return blurred
    grown = g("Pad", blurred, [0, 0, 0, 0, 0, 0, 1, 1], mode="edge")
    return g.cut(grown, [2, 3], [0, 0], [_END, _END], 2)
