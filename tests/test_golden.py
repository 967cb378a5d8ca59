"""The shipped descriptors return the same values as when they were released, for every arithmetic and in ONNX."""

import numpy as np
import pytest
import torch

from doap.descriptor import Descriptor

# Every 16th dimension for four patches of random 4×4 blocks.
REAL = {
    "doap-128": [
        [-0.0244119, -0.0242211, 0.0820996, 0.1463928, -0.0271127, -0.1121881, 0.0051504, 0.0993802],
        [-0.0321045, 0.1483192, 0.1229558, -0.0671167, -0.0355780, 0.0297183, -0.0245431, 0.0427905],
        [-0.0862661, 0.0331357, 0.1154468, 0.0143806, 0.0389461, 0.0870554, 0.1736491, -0.0130242],
        [0.0549276, 0.0442319, -0.0369361, 0.0007904, -0.0875353, 0.0098393, -0.0099831, -0.0511095],
    ],
    "doap-fast": [
        [0.1065226, -0.1074478, 0.0097545, 0.0712549, 0.1730227, 0.0282491, -0.0950655, -0.1331292],
        [0.0032850, -0.0403255, 0.1829209, 0.0549384, -0.0321308, -0.2269485, 0.0408801, 0.0119737],
        [0.0082638, -0.1036518, -0.0459067, -0.0029371, 0.1659501, -0.1871811, 0.0198943, -0.0234438],
        [0.2371452, 0.0658817, 0.0754119, 0.0498963, 0.1151978, -0.1819278, -0.0395205, -0.0033549],
    ],
}
# All bits of doap-256bit for the same patches; no activation is within 0.0019 of zero.
BITS = [
    "fffef40b1820e9aeab3e6efaaf5e2deb311c74b2fe01908ade7eea07e1fb75e9",
    "1a7ab481b963ec3a3a0e2d97afd60e931a92feda32768c59af85b3c7bab0f20c",
    "4bcbf27d770fdb29aef20e31d25e19483f19d372721f153586f0bad96098c6ef",
    "6a0eb4b53bdc5c99deca6c4ab6c184fa151a4bd870f60fbf1ed1b299aa127a8c",
]


def patches():
    cells = np.random.default_rng(20).random((4, 1, 8, 8), np.float32)
    return torch.from_numpy(cells.repeat(4, 2).repeat(4, 3))


@pytest.fixture(params=[1, 2])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


# With bfloat16, which has 8 bits of precision, the largest difference measured was 0.0016.
@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-5), ("bfloat16", 4e-3)])
@pytest.mark.parametrize("name", REAL)
@pytest.mark.usefixtures("threads")
def test_real_descriptors_are_unchanged(name, precision, tolerance):
    described = Descriptor.load(name, precision=precision).describe_patches(patches())
    torch.testing.assert_close(described[:, ::16], torch.tensor(REAL[name]), atol=tolerance, rtol=0)


# With bfloat16, the signs of activations near zero may differ. At most 6 of 1,024 bits did, for 200 sets of patches.
@pytest.mark.parametrize(("precision", "different"), [("float32", 0), ("bfloat16", 12)])
@pytest.mark.usefixtures("threads")
def test_doap_256bit_is_unchanged(precision, different):
    described = Descriptor.load("doap-256bit", precision=precision).describe_patches(patches()).numpy()
    expected = np.frombuffer(bytes.fromhex("".join(BITS)), np.uint8).reshape(described.shape)
    assert np.unpackbits(described ^ expected).sum() <= different
