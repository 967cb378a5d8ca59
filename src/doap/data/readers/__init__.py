"""Readers of published datasets. Opening a dataset reads no pixels; they are loaded on demand."""

from doap.data.readers.check_folder import FolderCheck, check_folder
from doap.data.readers.hpatches import HPatches, read_hpatches
from doap.data.readers.hpatches_tasks import (
    PatchList,
    RetrievalTask,
    Split,
    VerificationTask,
    read_retrieval,
    read_splits,
    read_verification,
)
from doap.data.readers.oxford import ImageSequence, read_oxford
from doap.data.readers.phototour import PhotoTour, read_phototour
from doap.data.readers.romepatches import RomePatches, RomeSplit, read_romepatches
from doap.data.readers.unit import Unit

__all__ = [
    "FolderCheck",
    "HPatches",
    "ImageSequence",
    "PatchList",
    "PhotoTour",
    "RetrievalTask",
    "RomePatches",
    "RomeSplit",
    "Split",
    "Unit",
    "VerificationTask",
    "check_folder",
    "read_hpatches",
    "read_oxford",
    "read_phototour",
    "read_retrieval",
    "read_romepatches",
    "read_splits",
    "read_verification",
]
