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
        [0.0037891, 0.0167957, -0.0582661, 0.0217127, 0.1953364, -0.0396084, 0.0446438, -0.0561497],
        [-0.0576656, 0.0137136, -0.0163009, 0.0808809, 0.2025639, -0.0710636, 0.1095139, 0.0129932],
        [0.0934595, -0.0432714, 0.0265499, 0.1895890, -0.0065332, -0.0103690, -0.0047533, 0.0225565],
        [0.0414441, 0.1193048, -0.0366332, -0.0241201, 0.0090452, 0.0970239, -0.1017607, -0.1690652],
    ],
    "doap-fast": [
        [-0.0352031, 0.1155834, 0.0584946, 0.0242405, 0.0440728, -0.0318461, 0.0617665, -0.0252681],
        [0.0440461, 0.1712835, -0.0136300, 0.0709855, -0.1117013, -0.0793434, 0.1064685, -0.0129040],
        [0.0797453, 0.0976036, -0.1451741, 0.0115818, -0.1194448, -0.0359354, 0.0821863, -0.0288251],
        [-0.0781025, 0.0596346, -0.0434166, 0.0766867, -0.1191498, -0.1606385, 0.1024839, 0.0096066],
    ],
}
# All bits of doap-256bit for the same patches; no activation is within 0.002 of zero.
BITS = [
    "d6cd05b7a1929dbc9440c409d8ab513a281be0120453ef9b81ad49603ddaf95c",
    "df87079da193093f9754847dcaa2c428019d96b6666fc20195bf252a0cfbef8c",
    "559e9c46c624aad3ce2730be9ea1bf4cc8aff911c4d28dd85ce40531f338dad9",
    "8a31c9b49d1cab62d10cac1d6e459ff28d50ed5ae849558d2f2c29b6adc02743",
]


def patches():
    cells = np.random.default_rng(19).random((4, 1, 8, 8), np.float32)
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
