"""How matching holds when the camera turns or comes nearer.

    python benchmarks/sweeps.py PHOTO [--descriptor rootsift --descriptor my.safetensors] [--detector sift]
        [--out results/sweeps.json] [--plot sweeps.png]

The photo is turned by 0 to 180° about its middle, and scaled by ½ to 2, on a canvas that holds all of it. Keypoints are
found anew, described, and matched with those of the photo as mutual nearest neighbours. The inlier ratio is the share
of matches that lie within 3 pixels of the truth, in pixels of the coarser image.

Fine keypoints of the sharper image are not in the coarser one. They match nothing, or something wrong, whatever the
descriptor. So a second ratio is told, of the keypoints in each image that are no finer than the finest of the other.

A photo matched with itself has a ratio of 1 by its making, and no view that is sampled anew can have that. So the views
at 0° and ×1 are sampled anew too, a part of a pixel aside. They are the reference, and the fall from 1 is told beside.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import record
import torch

from doap.calibration import partners, within
from doap.cli.names import open_descriptor, open_detector
from doap.detectors import Detector
from doap.images import read_grey, scales
from doap.peers import Describer
from doap.pipeline import extract, match
from doap.types import Features

SWEEPS = {
    "rotation": [(float(degrees), 1.0) for degrees in range(0, 181, 15)],
    "scale": [(0.0, 2 ** (step / 4)) for step in range(-4, 5)],
}
# Between 0, where nothing is sampled anew, and ½, where the most is: as the pixels of a turned view are.
SHIFT = 0.3
NEAR = 3.0
ALLOWED = 0.15


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("photo", type=Path)
    parser.add_argument("--descriptor", action="append", help="a peer's name or a file; may be repeated")
    parser.add_argument("--detector", default="sift")
    parser.add_argument("--most", type=int, default=2000, help="keypoints of an image")
    parser.add_argument("--plot", type=Path, help="where to draw the curves")
    options = parser.parse_args()
    torch.set_num_threads(1)
    photo, detector = read_grey(options.photo), open_detector(options.detector)
    curves = [
        curve
        for name in options.descriptor or ["rootsift", "sift"]
        for curve in measure(photo, Path(name).stem, open_descriptor(name), detector, options.most)
    ]
    for curve in curves:
        show(curve)
    figures = {"photo": "/".join(options.photo.parts[-2:]), "detector": options.detector, "curves": curves}
    record.write(options.out, options.seed, figures)
    if options.plot:
        draw(curves, options.plot, options.detector)


def measure(photo: np.ndarray, name: str, descriptor: Describer, detector: Detector, most: int) -> list[dict[str, Any]]:
    """The curve of each sweep: inlier ratios and numbers of matches, the reference, and the greatest fall."""
    of_photo = extract(photo, descriptor, detector=detector, most=most)
    itself = inlier_ratio(of_photo, of_photo, np.eye(3))[0]
    curves = []
    for sweep, settings in SWEEPS.items():
        points = []
        for degrees, factor in settings:
            image, homography = view(photo, degrees, factor)
            of_view = inside_photo(extract(image, descriptor, detector=detector, most=most), homography, photo)
            ratio, matches = inlier_ratio(of_photo, of_view, homography)
            common, _ = inlier_ratio(*in_both(of_photo, of_view, factor), homography)
            points.append(
                {"degrees": degrees, "factor": factor, "ratio": ratio, "matches": matches, "ratio_in_both": common}
            )
        curves.append(
            {"descriptor": name, "sweep": sweep, "photo_with_itself": itself, **falls(points), "points": points}
        )
    return curves


def view(photo: np.ndarray, degrees: float, factor: float) -> tuple[np.ndarray, np.ndarray]:
    """The whole photo, turned clockwise and scaled about its middle, and the (3, 3) homography to it."""
    height, width = photo.shape
    cos, sin = factor * np.cos(np.radians(degrees)), factor * np.sin(np.radians(degrees))
    linear = np.array([[cos, -sin], [sin, cos]])
    canvas = np.ceil(np.abs(linear) @ [width, height] - 1e-6).astype(int) + 1
    homography = np.eye(3)
    homography[:2, :2] = linear
    homography[:2, 2] = (canvas - 1) / 2 - linear @ [(width - 1) / 2, (height - 1) / 2]
    # The middle falls on a whole or a half pixel; a quarter turn would only move pixels.
    homography[:2, 2] += SHIFT - homography[:2, 2] % 1 if degrees % 90 == 0 and factor == 1 else 0
    if factor < 1:
        # From the blur of a sharp photo to that of one with fewer pixels: what these cannot hold goes first.
        photo = cv2.GaussianBlur(photo, (0, 0), 0.5 * np.sqrt(1 / factor**2 - 1))
    size = tuple(int(side) for side in canvas)
    warped = cv2.warpPerspective(photo, homography, size, flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE)
    return np.asarray(warped, np.uint8), homography


def falls(points: list[dict[str, Any]]) -> dict[str, float]:
    """The ratios at 0° and ×1, the lowest ones, and the share lost between the two."""
    reference = next(point for point in points if (point["degrees"], point["factor"]) == (0, 1))
    told = {}
    for key, what in (("ratio", ""), ("ratio_in_both", "_in_both")):
        lowest = min(point[key] for point in points)
        told |= {
            f"reference{what}": reference[key],
            f"lowest{what}": lowest,
            f"fall{what}": 1 - lowest / reference[key],
        }
    return told


def inside_photo(features: Features, homography: np.ndarray, photo: np.ndarray) -> Features:
    """Without the keypoints on the canvas around the photo, which is made of repeated pixels."""
    return some(features, within(features.frames, np.linalg.inv(homography), photo.shape))


def in_both(of_photo: Features, of_view: Features, factor: float) -> tuple[Features, Features]:
    """The keypoints of each image that are no finer than the finest of the other."""
    sizes0, sizes1 = scales(of_photo.frames) * factor, scales(of_view.frames)
    return some(of_photo, sizes0 >= sizes1.min(initial=np.inf)), some(of_view, sizes1 >= sizes0.min(initial=np.inf))


def some(features: Features, keep: np.ndarray) -> Features:
    descriptors = features.descriptors[torch.from_numpy(keep)]
    return Features(features.frames[keep], features.responses[keep], descriptors, features.image_size)


def inlier_ratio(features0: Features, features1: Features, homography: np.ndarray) -> tuple[float, int]:
    """The share of matches that are right, and the number of matches."""
    pairs = match(features0, features1)
    right = partners(features0.frames, features1.frames, homography, NEAR)[tuple(pairs.T)]
    return (float(right.mean()) if len(right) else 0.0), len(right)


def show(curve: dict[str, Any]) -> None:
    print(f"{curve['descriptor']}, {curve['sweep']}: inlier ratio of all keypoints, and of those in both images")
    for point in curve["points"]:
        print(
            f"  {point['degrees']:4.0f}° ×{point['factor']:.2f}  {point['ratio']:.4f} of {point['matches']:4} matches"
            f"  {point['ratio_in_both']:.4f}"
        )
    for what, name in (("", "all keypoints"), ("_in_both", "those in both")):
        reference, lowest, fall = (curve[key + what] for key in ("reference", "lowest", "fall"))
        held = "less than" if fall < ALLOWED else "NOT less than"
        print(f"  {name}: from {reference:.4f} at 0° ×1 to {lowest:.4f}, a fall of {fall:.1%}: {held} {ALLOWED:.0%}")
    itself = curve["photo_with_itself"]
    print(f"  the photo with itself: {itself:.4f}; from there a fall of {1 - curve['lowest'] / itself:.1%}")


def draw(curves: list[dict[str, Any]], out: Path, detector: str) -> None:
    """Two panels, one for each sweep, a line for each descriptor."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
    axes = {"rotation": ("degrees", "turned by, in degrees"), "scale": ("factor", "scaled by")}
    for panel, (sweep, (key, label)) in zip(panels, axes.items(), strict=True):
        for curve in (curve for curve in curves if curve["sweep"] == sweep):
            x, y = ([point[which] for point in curve["points"]] for which in (key, "ratio"))
            (line,) = panel.plot(x, y, marker="o", label=curve["descriptor"])
            panel.plot(x, [point["ratio_in_both"] for point in curve["points"]], color=line.get_color(), linestyle="--")
            panel.axhline((1 - ALLOWED) * curve["reference"], color=line.get_color(), linestyle=":", linewidth=1)
        panel.set(xlabel=label, ylim=(0, 1.02))
        panel.grid(alpha=0.3)
    panels[0].set_ylabel(f"inlier ratio, {detector} keypoints")
    panels[0].set_xticks(range(0, 181, 30))
    panels[1].set_xscale("log", base=2)
    panels[1].set_xticks([0.5, 1, 2], ["½", "1", "2"])
    panels[1].legend(
        title=f"dashed: keypoints that both can hold\ndotted: {1 - ALLOWED:.0%} of 0°, ×1", loc="lower right"
    )
    figure.savefig(out, dpi=120)
    pyplot.close(figure)


if __name__ == "__main__":
    main()
