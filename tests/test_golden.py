"""The shipped descriptors return the same values as when they were released, for every arithmetic and in ONNX."""

import numpy as np
import pytest
import torch

import doap
from doap.descriptor import Descriptor
from doap.export.onnx import write_onnx

# Every 16th dimension for four patches of random 4×4 blocks.
REAL = {
    "doap-128": [
        [0.0470496, 0.0301395, -0.1556510, 0.0188299, 0.0379583, -0.1025329, 0.0102378, 0.0666708],
        [-0.0720341, 0.0303176, -0.1439034, -0.0700093, -0.0620586, 0.0271205, 0.0514235, 0.0404008],
        [-0.0832077, -0.0225221, -0.0852330, 0.0164735, 0.1421592, -0.0155603, 0.0456842, 0.0415018],
        [-0.0573805, -0.0650971, -0.1356414, -0.1348097, -0.0702981, -0.0519612, -0.0494733, -0.0218235],
    ],
    "doap-fast": [
        [-0.0113991, 0.0311876, -0.0407623, 0.0424878, -0.2076671, 0.0194159, -0.0005177, -0.1812118],
        [0.1202222, 0.0768639, 0.0897815, -0.0402760, -0.1229339, 0.0348460, -0.0857999, -0.1311450],
        [0.0564330, 0.1418435, 0.0459894, 0.1368569, -0.0429852, -0.1346893, 0.0469335, 0.0122465],
        [0.0308812, 0.1916111, 0.0797897, 0.0061887, -0.0620841, -0.1154649, 0.1020942, 0.0188333],
    ],
}
# All bits of doap-256bit for the same patches; no activation is within 0.007 of zero.
BITS = [
    "5008b8430bbfec056248085e03faf92ae7b8a81620cac3f055aa842f7da2ed9d",
    "6cc8c495efcb0e37500384e960d778adb4d818a06abcac526228d47b70f63530",
    "61b9fb3358d3685f764b0428d05ed8014c1863d2823c1d5a039a2171349f8d31",
    "64faa521fa7f9c2a781ab46b3cc8f82828587ec58885cff4637c55ab31fc2834",
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
    described = Descriptor.load(name, precision=precision).describe(patches())
    torch.testing.assert_close(described[:, ::16], torch.tensor(REAL[name]), atol=tolerance, rtol=0)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.usefixtures("threads")
def test_doap_256bit_is_unchanged(precision):
    described = Descriptor.load("doap-256bit", precision=precision).describe(patches())
    assert [row.numpy().tobytes().hex() for row in described] == BITS


@pytest.mark.slow
@pytest.mark.parametrize("name", [*REAL, "doap-256bit"])
def test_descriptors_exported_to_onnx_are_unchanged(name, tmp_path):
    pytest.importorskip("onnxscript")
    write_onnx(Descriptor.load(name), tmp_path / "golden.onnx")
    described = doap.load(tmp_path / "golden.onnx").describe(patches())
    if name in REAL:
        torch.testing.assert_close(described[:, ::16], torch.tensor(REAL[name]), atol=1e-5, rtol=0)
    else:
        assert [row.numpy().tobytes().hex() for row in described] == BITS
