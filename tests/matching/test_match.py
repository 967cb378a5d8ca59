"""Matches of descriptors compared with the full distance table."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import normalize

from doap._support.errors import ArgumentError, ShapeError
from doap.matching import match_descriptors
from doap.matching.nearest import MAX_ROWS, _key_layout, match_binary, match_real, row_blocks
from doap.metrics import pack_bits

RATIOS = st.sampled_from([None, 0.5, 0.8, 0.95, 1.0])
SIZES = st.integers(1, 24)
SEEDS = st.integers(0, 2**31)


def euclidean_table(queries, gallery):
    return np.sqrt(((queries.numpy().astype(np.float64)[:, None] - gallery.numpy().astype(np.float64)) ** 2).sum(2))


def hamming_table(queries, gallery):
    return np.unpackbits(queries.numpy()[:, None] ^ gallery.numpy(), axis=2).sum(2, dtype=np.int64)


def matches_of(table, ratio, mutual, back=True):
    """Pairs and distances of a full distance table, one query at a time. `back` tests the ratio in both directions."""
    found = []
    for row, distances in enumerate(table.tolist()):
        nearest = distances.index(min(distances))
        column = table[:, nearest].tolist()
        if not passes(distances, nearest, ratio):
            continue
        if mutual and (column.index(min(column)) != row or (back and not passes(column, row, ratio))):
            continue
        found.append((row, nearest, distances[nearest]))
    return [pair[:2] for pair in found], [pair[2] for pair in found]


def passes(distances, nearest, ratio):
    others = distances[:nearest] + distances[nearest + 1 :]
    return ratio is None or not others or distances[nearest] < ratio * min(others)


def in_blocks(search, queries, gallery, ratio, mutual, block):
    nearest, distances, kept = search(queries, gallery, ratio, mutual, block)
    return [(row, int(nearest[row])) for row in kept.nonzero().squeeze(1).tolist()], distances[kept].tolist()


def as_tuples(pairs):
    return [tuple(pair) for pair in pairs.tolist()]


def real_rows(kind, rows, dim, generator):
    if kind == "grid":  # many equal distances, and zero rows
        return torch.randint(0, 3, (rows, dim), generator=generator).float()
    values = normalize(torch.randn(rows, dim, generator=generator))
    if kind == "norms":
        values *= torch.logspace(-2, 3, rows)[:, None]
    if kind in ("repeated", "one bit apart"):
        values = values[torch.randint(0, max(1, rows // 3), (rows,), generator=generator)]
    if kind == "one bit apart":  # a float32 product cannot distinguish them
        up = torch.randint(0, 2, values.shape, generator=generator).bool()
        values = torch.where(up, torch.nextafter(values, torch.tensor(2.0)), values)
    return values


KINDS = st.sampled_from(["unit", "grid", "norms", "repeated", "one bit apart"])


@given(KINDS, SIZES, SIZES, st.integers(1, 40), RATIOS, st.booleans(), st.integers(1, 300), SEEDS)
def test_real_matches_are_those_of_the_full_table_for_any_block_size(kind, n0, n1, dim, ratio, mutual, block, seed):
    generator = torch.Generator().manual_seed(seed)
    rows = real_rows(kind, n0 + n1, dim, generator)[torch.randperm(n0 + n1, generator=generator)]
    queries, gallery = rows[:n0], rows[n0:]
    table = euclidean_table(queries, gallery)
    one_way, _ = matches_of(table, ratio, mutual, back=False)
    assert in_blocks(match_real, queries, gallery, ratio, mutual, block)[0] == one_way
    expected, distances = matches_of(table, ratio, mutual)
    pairs, found = match_descriptors(queries, gallery, ratio=ratio, mutual=mutual)
    assert as_tuples(pairs) == expected
    torch.testing.assert_close(found, torch.tensor(distances, dtype=torch.float32))


@given(SIZES, SIZES, st.sampled_from([1, 2, 32]), RATIOS, st.booleans(), st.integers(1, 300), SEEDS)
def test_binary_matches_are_those_of_the_full_table_for_any_block_size(n0, n1, octets, ratio, mutual, block, seed):
    generator = torch.Generator().manual_seed(seed)
    values = torch.tensor([0, 1, 3, 128, 255], dtype=torch.uint8) if octets == 2 else torch.arange(256).byte()
    codes = values[torch.randint(0, len(values), (n0 + n1, octets), generator=generator)]
    queries, gallery = codes[:n0], codes[n0:]
    table = hamming_table(queries, gallery)
    assert in_blocks(match_binary, queries, gallery, ratio, mutual, block) == matches_of(
        table, ratio, mutual, back=False
    )
    expected = matches_of(table, ratio, mutual)
    pairs, distances = match_descriptors(queries, gallery, ratio=ratio, mutual=mutual)
    assert (as_tuples(pairs), distances.tolist()) == expected


def descriptors(binary, kind, n0, n1, seed):
    generator = torch.Generator().manual_seed(seed)
    if binary:
        codes = torch.randint(0, 256, (n0 + n1, 2), generator=generator).byte()
        return codes[:n0], codes[n0:]
    rows = real_rows(kind, n0 + n1, 6, generator)[torch.randperm(n0 + n1, generator=generator)]
    return rows[:n0], rows[n0:]


@given(st.booleans(), KINDS, SIZES, SIZES, SEEDS)
def test_swapping_the_images_swaps_the_columns_of_mutual_matches(binary, kind, n0, n1, seed):
    queries, gallery = descriptors(binary, kind, n0, n1, seed)
    pairs, distances = match_descriptors(queries, gallery)
    swapped, same = match_descriptors(gallery, queries)
    order = swapped[:, 1].argsort()
    assert torch.equal(pairs, swapped.flip(1)[order])
    assert torch.equal(distances, same[order])


@given(st.booleans(), KINDS, SIZES, SIZES, SEEDS)
def test_ratio_one_drops_ties_only(binary, kind, n0, n1, seed):
    queries, gallery = descriptors(binary, kind, n0, n1, seed)
    table = (hamming_table if binary else euclidean_table)(queries, gallery)
    tied = (table == table.min(1, keepdims=True)).sum(1) > 1
    pairs, _ = match_descriptors(queries, gallery, ratio=1.0, mutual=False)
    assert pairs[:, 0].tolist() == np.flatnonzero(~tied).tolist()


@pytest.mark.parametrize("row", [torch.full((1, 8), 0.3), torch.zeros(1, 8), torch.full((1, 4), 9, dtype=torch.uint8)])
def test_the_lowest_index_wins_among_equal_descriptors_on_both_sides(row):
    queries, gallery = row.repeat(600, 1), row.repeat(3, 1)
    pairs, distances = match_descriptors(queries, gallery)
    assert pairs.tolist() == [[0, 0]]
    assert distances.tolist() == [0]
    one_way, _ = match_descriptors(queries, gallery, mutual=False)
    assert one_way.tolist() == [[number, 0] for number in range(600)]


@pytest.mark.parametrize(("distance", "kept"), [(0.5 - 2**-25, 1), (0.5, 0), (0.5 + 2**-24, 0)])
def test_the_ratio_test_is_more_precise_than_a_float32_product(distance, kept):
    gallery = torch.tensor([[distance, 0.0], [0.0, 1.0]])
    assert len(match_descriptors(torch.zeros(1, 2), gallery, ratio=0.5)[0]) == kept


def test_the_mutual_test_is_more_precise_than_a_float32_product():
    """The second query is nearer to the first gallery item by one unit in the last digit, but matches another one."""
    queries = torch.tensor([[0.0, 1 + 2**-23], [1.0, 0.0]])
    gallery = torch.tensor([[0.0, 0.0], [1.0, 0.1]])
    assert match_descriptors(queries, gallery)[0].tolist() == [[1, 1]]


@given(st.integers(1, 3000), st.integers(1, 300), st.integers(1, 10_000))
def test_blocks_of_rows_cover_a_table_once_in_bounded_memory(rows, columns, block):
    parts = list(row_blocks(rows, columns, block))
    assert [row for part in parts for row in range(part.start, part.stop)] == list(range(rows))
    sizes = [part.stop - part.start for part in parts]
    assert max(sizes) == sizes[0] <= MAX_ROWS
    assert sizes[0] * columns <= max(block, columns)


def test_distances_of_near_descriptors_are_precise():
    query = normalize(torch.ones(1, 128))
    other = query.clone()
    other[0, 0] += 1e-5
    _, distance = match_descriptors(query, other)
    torch.testing.assert_close(distance.double(), (query.double() - other.double()).norm(dim=1), rtol=1e-6, atol=0)


@pytest.mark.parametrize("scale", [1e-30, 1e-19, 1e18])
def test_extreme_float32_values_are_matched_correctly(scale):
    rows = real_rows("unit", 40, 16, torch.Generator().manual_seed(0)) * scale
    expected, _ = matches_of(euclidean_table(rows[:20], rows[20:]), 0.95, True)
    assert as_tuples(match_descriptors(rows[:20], rows[20:], ratio=0.95)[0]) == expected


@pytest.mark.parametrize("length", [1, 512, 1e4])
@pytest.mark.parametrize("slack", [-1e-5, 1e-5])
def test_the_ratio_test_is_exact_for_descriptors_of_any_length(length, slack):
    """Each query has a neighbour at almost exactly the ratio; a float32 product is not precise enough to decide."""
    random = torch.Generator().manual_seed(0)
    queries, aside0, aside1 = normalize(torch.randn(3, 64, 32, generator=random, dtype=torch.float64), dim=2) * length
    gallery = torch.cat([queries + 0.02 * 0.8 * (1 + slack) * aside0, queries + 0.02 * aside1])
    pairs, _ = match_descriptors(queries.float(), gallery.float(), ratio=0.8, mutual=False)
    expected, _ = matches_of(euclidean_table(queries.float(), gallery.float()), 0.8, False)
    assert as_tuples(pairs) == expected
    assert len(pairs) == (64 if slack < 0 else 0)


def test_autocast_and_matmul_precision_do_not_change_the_result():
    rows = real_rows("one bit apart", 400, 64, torch.Generator().manual_seed(0))
    expected = match_descriptors(rows[:200], rows[200:], ratio=0.99)
    with torch.autocast("cpu", torch.bfloat16):
        found = match_descriptors(rows[:200], rows[200:], ratio=0.99)
    assert torch.equal(found[0], expected[0])
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        found = match_descriptors(rows[:200], rows[200:], ratio=0.99)
    finally:
        torch.set_float32_matmul_precision(before)
    assert torch.equal(found[0], expected[0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_any_float_type_gives_int64_pairs_and_float32_distances_without_gradient(dtype):
    rows = real_rows("unit", 20, 8, torch.Generator().manual_seed(0)).to(dtype).requires_grad_()
    pairs, distances = match_descriptors(rows[:9], rows[9:].float())
    expected, _ = matches_of(euclidean_table(rows[:9].detach().float(), rows[9:].detach().float()), None, True)
    assert as_tuples(pairs) == expected
    assert (pairs.dtype, distances.dtype, distances.requires_grad) == (torch.int64, torch.float32, False)


@pytest.mark.parametrize(("n0", "n1"), [(0, 3), (3, 0), (0, 0)])
@pytest.mark.parametrize(("dtype", "distance"), [(torch.float32, torch.float32), (torch.uint8, torch.int32)])
def test_an_empty_side_has_no_matches(n0, n1, dtype, distance):
    pairs, distances = match_descriptors(torch.zeros(n0, 4, dtype=dtype), torch.zeros(n1, 4, dtype=dtype), ratio=0.8)
    assert (pairs.shape, pairs.dtype, distances.shape, distances.dtype) == ((0, 2), torch.int64, (0,), distance)


@pytest.mark.parametrize(
    ("bits", "rows", "columns", "dtype"),
    [(256, 2048, 2048, torch.int32), (256, 1, 2**23, torch.int64), (4096, 2**19, 2**19, torch.int64)],
)
def test_the_keys_of_large_tables_have_64_bits(bits, rows, columns, dtype):
    """Matching so many descriptors would take too long for a test."""
    shift, found = _key_layout(bits, rows, columns)
    assert found == dtype
    largest = (bits << shift) + rows - 1 + columns - 1
    assert largest >> shift == bits
    assert largest < torch.iinfo(dtype).max


REAL, BITS = torch.zeros(2, 4), torch.zeros(2, 4, dtype=torch.uint8)


@pytest.mark.parametrize(
    ("queries", "gallery", "options", "error"),
    [
        (REAL[0], REAL, {}, ShapeError),
        (REAL, REAL[:, :3], {}, ShapeError),
        (REAL, BITS, {}, ArgumentError),
        (BITS, REAL, {}, ArgumentError),
        (BITS, REAL.int(), {}, ArgumentError),
        (REAL, REAL.to("meta"), {}, ArgumentError),
        (REAL, REAL.int(), {}, ArgumentError),
        (REAL.int(), REAL.int(), {}, ArgumentError),
        *((REAL, REAL, {"ratio": ratio}, ArgumentError) for ratio in (0, 1.2, float("nan"))),
        (REAL, REAL / 0, {}, ArgumentError),
        (REAL + torch.inf, REAL, {}, ArgumentError),
        (REAL + 1e19, REAL, {}, ArgumentError),
        # The sum of two such squares would overflow.
        (REAL, REAL + 7e18, {}, ArgumentError),
    ],
)
def test_bad_input_is_refused(queries, gallery, options, error):
    with pytest.raises(error):
        match_descriptors(queries, gallery, **options)


@pytest.mark.parametrize("bits", [8, 256, 504, 512, 520, 1024])
def test_every_hamming_distance_is_exact(bits):
    flipped = torch.arange(bits) < torch.arange(bits + 1)[:, None]
    base = torch.rand(bits, generator=torch.Generator().manual_seed(bits)) < 0.5
    queries = torch.from_numpy(np.packbits((flipped ^ base).numpy(), axis=1))
    gallery = torch.from_numpy(np.packbits(base.numpy()[None], axis=1))
    for copies in (1, 40):
        _, distances = match_descriptors(queries, gallery.repeat(copies, 1), mutual=False)
        assert distances.tolist() == list(range(bits + 1))


@pytest.mark.gpu
@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("ratio", [None, 0.9])
@pytest.mark.parametrize("mutual", [True, False])
def test_matches_on_a_gpu_stay_there_and_equal_those_on_the_cpu(cuda, binary, ratio, mutual):
    generator = torch.Generator().manual_seed(0)
    gallery = normalize(torch.randn(3000, 128, generator=generator))
    queries = normalize(gallery[:2000].flip(0) + 0.1 * torch.randn(2000, 128, generator=generator))
    if binary:
        queries, gallery = pack_bits(queries), pack_bits(gallery)
    expected_pairs, expected_distances = match_descriptors(queries, gallery, ratio=ratio, mutual=mutual)
    pairs, distances = match_descriptors(queries.to(cuda), gallery.to(cuda), ratio=ratio, mutual=mutual)
    assert (pairs.device.type, distances.device.type) == ("cuda", "cuda")
    assert torch.equal(pairs.cpu(), expected_pairs)
    torch.testing.assert_close(distances.cpu(), expected_distances)


@pytest.mark.gpu
@pytest.mark.parametrize("bits", [8, 256, 2048, 2056])
def test_every_hamming_distance_is_exact_on_a_gpu(cuda, bits):
    flipped = torch.arange(bits) < torch.arange(bits + 1)[:, None]
    queries = pack_bits(flipped.to(cuda))
    _, distances = match_descriptors(queries, torch.zeros_like(queries[:1]), mutual=False)
    assert distances.tolist() == list(range(bits + 1))
