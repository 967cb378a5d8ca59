"""The copy of a network for inference: equal numbers, fewer layers, and no effect on the network itself."""

import pytest
import torch
from torch import nn

from doap.networks import NETWORKS
from doap.networks.inference import for_inference


def with_statistics(network):
    """Draw the statistics of batch normalisation, which are 0 and 1 in a new network."""
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.running_mean.normal_()
            layer.running_var.uniform_(0.5, 2)
            if layer.affine:
                nn.init.normal_(layer.weight)
                nn.init.normal_(layer.bias)
    return network


@pytest.mark.parametrize("name", NETWORKS)
def test_the_copy_computes_what_the_network_computes_in_evaluation_mode(name):
    torch.manual_seed(0)
    network = with_statistics(NETWORKS[name]())
    patches = torch.randn(9, 1, network.patch_size, network.patch_size)
    with torch.no_grad():
        copied = for_inference(network.train())(patches)
        torch.testing.assert_close(copied, network.eval()(patches), rtol=1e-4, atol=1e-5)


def test_a_change_of_the_weights_is_seen_by_the_next_copy():
    network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)).eval()
    images = torch.randn(2, 1, 5, 5)
    for_inference(network)(images)
    # This kind of change does not increase the version counter of the tensor.
    network[0].weight.data.mul_(3)
    torch.testing.assert_close(for_inference(network)(images), network(images))


@pytest.mark.parametrize("name", NETWORKS)
def test_every_convolution_of_doap_absorbs_its_normalisation(name):
    copied = for_inference(NETWORKS[name]())
    assert not [layer for layer in copied.modules() if isinstance(layer, nn.BatchNorm2d)]


class Doubled(nn.BatchNorm2d):
    """A normalisation of somebody else, which must not be taken for the usual one."""

    def forward(self, images):
        return 2 * super().forward(images)


def without_statistics():
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2, track_running_stats=False))


def with_hook():
    layers = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
    layers[0].register_forward_hook(lambda layer, inputs, output: output + 1)
    return layers


def registered_twice():
    shared = nn.BatchNorm2d(1)
    return nn.Sequential(shared, nn.ReLU(), shared)


@pytest.mark.parametrize(
    "build",
    [lambda: nn.Sequential(nn.Conv2d(1, 2, 3), Doubled(2)), without_statistics, with_hook, registered_twice],
    ids=["subclass", "no statistics", "hook", "registered twice"],
)
def test_unusual_layers_are_left_as_they_are(build):
    torch.manual_seed(0)
    layers = build()
    images = torch.randn(4, 1, 6, 6)
    copied = for_inference(layers.train())
    torch.testing.assert_close(copied(images), layers.eval()(images))
    assert len(list(copied)) == len(list(layers))
