"""Formats of programs that read the features of each image from files of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from doap.collection.extractor import ExtractorInfo
from doap.types import Features


class DescribedImage(NamedTuple):
    """An image to write.

    Attributes:
        read_colour: Reads the image, (H, W, 3) uint8 as blue, green, red, if its features are still up to date.
        features: Its features.
        extractor: Settings of the features.
        signed: Whether any descriptor of any image has negative values.
    """

    read_colour: Callable[[], NDArray[np.uint8]]
    features: Features
    extractor: ExtractorInfo
    signed: bool


class FeatureFormat(NamedTuple):
    """The files that a program reads.

    Attributes:
        stem: Returns how the program names the files of an image, from the path of the image inside the folder.
        encoders: Functions that return the content of a file of an image, by the endings of the files.
        prepare: Refuses descriptors that the program cannot store; returns the files of all images together, by name.
    """

    stem: Callable[[str], str]
    encoders: dict[str, Callable[[DescribedImage], bytes]]
    prepare: Callable[[ExtractorInfo], dict[str, bytes]]

    def files(self, name: str) -> list[str]:
        """Return the names of the files of an image."""
        return [self.stem(name) + ending for ending in self.encoders]
