"""Readers of published datasets. Opening a dataset reads no pixels; they are loaded on demand."""

from doap.data.readers.hpatches import HPatches, PatchList, read_hpatches
from doap.data.readers.oxford import ImageSequence, read_oxford
from doap.data.readers.phototour import PhotoTour, read_phototour
from doap.data.readers.romepatches import RomePatches, RomeSplit, read_romepatches

__all__ = [
    "HPatches",
    "ImageSequence",
    "PatchList",
    "PhotoTour",
    "RomePatches",
    "RomeSplit",
    "read_hpatches",
    "read_oxford",
    "read_phototour",
    "read_romepatches",
]
