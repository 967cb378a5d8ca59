"""Measure how much Oxford mAP float16 weights and COLMAP's uint8 descriptors lose.

    python benchmarks/precision.py RUN/best.safetensors doap-128 OXFORD --out results/precision.json

The file contains the float32 weights of the run; the name is the shipped descriptor. All variants use COLMAP keypoints,
as in `recipes/evaluate.sh`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import record
from torch import Tensor

from doap.describer import Describer
from doap.descriptor import Descriptor
from doap.detectors import colmap
from doap.evaluation.cached_describer import CachedDescriber
from doap.evaluation.oxford import OxfordBenchmark
from doap.functional import quantise
from doap.types import Kind


@dataclass(frozen=True)
class Bytes:
    """A real-valued descriptor quantised to uint8."""

    base: Descriptor
    kind: Kind = "real"

    @property
    def patch_size(self) -> int:
        return self.base.patch_size

    @property
    def extent(self) -> float:
        return self.base.extent

    @property
    def dim(self) -> int:
        return self.base.dim

    def describe(self, patches: Tensor) -> Tensor:
        return quantise(self.base.describe(patches), signed=True).float()


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("run", type=Path, help="float32 weights")
    parser.add_argument("name", help="shipped descriptor")
    parser.add_argument("oxford", type=Path, help="folder of Oxford sequences")
    options = parser.parse_args()
    shipped = Descriptor.load(options.name, precision="float32")
    trained = Descriptor.load(options.run, precision="float32")
    trained.spec = trained.spec.model_copy(update={"extent": shipped.extent})
    describers: dict[str, Describer] = {"float32 weights": trained, "float16 weights": shipped}
    if shipped.kind == "real":
        describers["bytes"] = Bytes(shipped)
    sequences = OxfordBenchmark(options.oxford, detector=colmap())
    means = {}
    for name, describer in describers.items():
        scores = sequences.evaluate(CachedDescriber(describer), options.seed)
        means[name] = next(figure.total.value for figure in scores.figures if figure.name == "mAP")
        print(f"{name:16} mAP {means[name]:.4f}")
    record.write(options.out, options.seed, {"descriptor": options.name, "oxford mAP": means})


if __name__ == "__main__":
    main()
