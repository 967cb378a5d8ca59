"""Compare the ONNX file for COLMAP with `doap.extract`: keypoints, poses and CPU time.

    recipes/scenes.sh DATA evaluation SCENES
    python benchmarks/colmap_model.py SCENES DESCRIPTOR… --out results/colmap-model.json

Poses are those of the validation scenes fountain and taj_mahal, at the descriptor's ratio, with up to 8,192 SIFT
keypoints of both. `found` is the share of SIFT's keypoints with one of the file within 1 px and 10 % of the scale, in
all photos. Times are CPU time for one photo of one megapixel on one thread, measured in turns. Run nothing else beside
it.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import mean, median
from typing import Any

import cv2
import numpy as np
import onnxruntime
import record
import torch
from numpy.typing import NDArray
from scipy.spatial import cKDTree

import doap
from doap._support.files import sha256
from doap.descriptor import Descriptor
from doap.detectors import sift
from doap.detectors.detector import DetectedFrames
from doap.extractor import Extractor, KeypointExtractor, OpenedImage
from doap.images import centres, frames_from_arrays, read_grey, scales

SCENES = ("fountain", "taj_mahal")
MAX_KEYPOINTS, PADDING, ROUNDS = 8192, 32, 5


class ColmapModel(Extractor):
    """A file for COLMAP, run as COLMAP runs it: the photo is padded, and keypoints in the padding are dropped."""

    detector = sift()

    def __init__(self, path: Path, descriptor: Descriptor) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session, self.path = onnxruntime.InferenceSession(path, options), path
        self.name, self.kind, self.dim, self.ratio = "file", "real", descriptor.dim, descriptor.ratio

    def run(self, image: NDArray[np.uint8], max_keypoints: int = MAX_KEYPOINTS) -> tuple[Any, torch.Tensor]:
        """Return frames and descriptors; the frames have no orientation."""
        height, width = image.shape
        padded = np.pad(image, ((0, -height % PADDING), (0, -width % PADDING)), mode="edge")
        inputs = {
            "image": np.repeat(padded[None, None], 3, axis=1).astype(np.float32) / 255,
            "max_keypoints": np.array(max_keypoints),
            "min_score": np.array(0.2, np.float32),
        }
        keypoints, descriptors, scores = self.session.run(None, inputs)
        xy = (keypoints[0] + 1) / 2 * np.subtract(padded.shape[::-1], 1)
        sigma = 1.6 * scores[0] / (1 - scores[0])
        kept = (xy < np.subtract(image.shape[::-1], 0.5)).all(axis=1)
        return frames_from_arrays(xy[kept], 6 * sigma[kept]), torch.from_numpy(descriptors[0][kept])

    def open(self, image: NDArray[np.uint8]) -> OpenedImage:
        frames, descriptors = self.run(image)

        def detect(max_keypoints: int | None) -> DetectedFrames:
            return frames[:max_keypoints], scales(frames[:max_keypoints])

        return detect, lambda chosen: descriptors[: len(chosen)]

    def fingerprint(self) -> str:
        return sha256(self.path)


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("scenes", type=Path, help="frozen scenes of the evaluation")
    parser.add_argument("descriptors", nargs="+", help="names or files")
    options = parser.parse_args()
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    photos = [path for scene in SCENES for path in sorted((options.scenes / scene / "images").iterdir())]
    figures = {}
    for name in options.descriptors:
        with tempfile.TemporaryDirectory() as folder:
            descriptor, path = Descriptor.load(name, precision="float32"), Path(folder) / "doap.onnx"
            doap.export_descriptor(descriptor, path, to="colmap")
            figures[name] = compare(ColmapModel(path, descriptor), descriptor, photos, options.scenes)
        print(name, figures[name], flush=True)
        record.write(options.out, options.seed, {"photos": len(photos), "descriptors": figures})


def compare(model: ColmapModel, descriptor: Descriptor, photos: list[Path], scenes: Path) -> dict[str, Any]:
    """Return the figures of a file and of its descriptor."""
    plain = KeypointExtractor(descriptor, sift())
    with tempfile.TemporaryDirectory() as out:
        settings = {"test": ",".join(SCENES), "ratio": descriptor.ratio, "max_keypoints": MAX_KEYPOINTS}
        results = doap.evaluate({"file": model, "doap": plain}, "pose", scenes, out, settings=settings).results
    pose = {name: 100 * result.headline.total.value for name, result in results.items()}
    found = [share_found(model, plain, grey) for grey in map(read_grey, photos)]
    grey = cv2.resize(read_grey(photos[0]), (1152, 864))
    times = {"file": seconds(lambda: model.run(grey)), "doap": seconds(lambda: plain.extract(grey))}
    return {
        "pose AUC@10": pose,
        "found": mean(found),
        "CPU seconds": times,
        "ratio of times": times["file"] / times["doap"],
    }


def share_found(model: ColmapModel, plain: Extractor, grey: NDArray[np.uint8]) -> float:
    """Return the share of keypoints of a photo that the file finds, too."""
    features, (frames, _) = plain.extract(grey), model.run(grey)
    tree, sigma = cKDTree(centres(frames)), scales(frames)
    near = tree.query_ball_point(features.keypoints, 1)
    sizes = scales(features.frames)
    return mean(
        any(abs(np.log(sigma[k] / size)) < np.log(1.1) for k in ks) for ks, size in zip(near, sizes, strict=True)
    )


def seconds(run: Callable[[], Any]) -> float:
    """Return the median CPU time of a function."""
    times = []
    for _ in range(ROUNDS):
        begin = time.process_time()
        run()
        times.append(time.process_time() - begin)
    return median(times)


if __name__ == "__main__":
    main()
