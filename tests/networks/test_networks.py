"""Networks, heads and the spatial transformer."""

import pytest
import torch
from torch.nn.functional import interpolate

from doap.networks import NETWORKS, L2Net, L2NetST, SpatialTransformer, parameter_groups

EACH = pytest.mark.parametrize("make", NETWORKS.values(), ids=NETWORKS)


def patches(make, number=4):
    return torch.randn(number, 1, make.patch_size, make.patch_size, generator=torch.Generator().manual_seed(0))


@EACH
def test_real_descriptors_have_unit_length(make):
    described = make(dim=64)(patches(make))
    assert described.shape == (4, 64)
    torch.testing.assert_close(described.norm(dim=1), torch.ones(4))


@EACH
def test_all_parameters_learn(make):
    torch.manual_seed(0)
    network = make(dim=32)
    # A low rate: noise has steep gradients, and a transformation outside the patch only samples its
    # border.
    optimiser = torch.optim.SGD(network.parameters(), lr=1e-5)
    # Two steps: the transformer's initial zero weights block the gradient in the first one.
    for _ in range(2):
        optimiser.zero_grad()
        network(patches(make)).square()[:, :7].sum().backward()
        optimiser.step()
    assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in network.parameters())


def test_l2net_has_the_seven_convolutions_of_the_paper():
    shapes = [tuple(weight.shape) for weight in L2Net(dim=128).parameters()]
    widths = [(32, 1), (32, 32), (64, 32), (64, 64), (128, 64), (128, 128)]
    assert shapes == [(*width, 3, 3) for width in widths] + [(128, 128, 8, 8)]


@pytest.mark.parametrize("make", [L2Net, L2NetST])
def test_inner_dimensions_keep_a_256_bit_network_small(make):
    def weights(**arguments):
        return sum(parameter.numel() for parameter in make(**arguments).parameters())

    bits = {"dim": 256, "kind": "binary"}
    assert weights(**bits, inner=128) == weights(dim=128) + 128 * 256
    assert weights(**bits) > 1.7 * weights(dim=128)
    assert make(**bits, inner=128)(patches(make)).shape == (4, 256)


def test_the_initial_spatial_transformer_shrinks_the_whole_patch():
    smooth = interpolate(patches(L2NetST)[:, :, :6, :6], size=(42, 42), mode="bicubic")
    aligned = SpatialTransformer()(smooth)
    expected = interpolate(smooth, size=(32, 32), mode="bilinear", align_corners=False)
    torch.testing.assert_close(aligned, expected, rtol=0, atol=1e-4)


def test_the_spatial_transformer_repeats_the_border():
    transformer = SpatialTransformer()
    with torch.no_grad():
        transformer.affine.bias.copy_(torch.tensor([3.0, 0, 0, 0, 3, 0]))
    torch.testing.assert_close(transformer(torch.full((1, 1, 42, 42), 0.7)), torch.full((1, 1, 32, 32), 0.7))


def test_the_layer_that_predicts_the_transformation_learns_at_a_hundredth_of_the_rate():
    network = L2NetST()
    fast, slow = parameter_groups(network, 0.1)
    assert (fast["lr"], slow["lr"]) == (0.1, pytest.approx(0.001))
    assert {id(p) for p in slow["params"]} == {id(p) for p in network.align.affine.parameters()}
    assert len(fast["params"]) + len(slow["params"]) == len(list(network.parameters()))
    assert len(parameter_groups(L2Net(), 0.1)) == 1
