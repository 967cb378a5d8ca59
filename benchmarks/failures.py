"""Match difficult views of the sample photo, and draw the failure cases of the model cards.

    python benchmarks/failures.py --out results/failures.json

Each case is a synthetic view of the sample photo with a known homography. All descriptors get the same SIFT keypoints,
and matches are mutual nearest neighbours. A match is correct within 3 pixels. Pictures are written to
docs/pictures/failures-NAME.jpg for each shipped descriptor.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import record
from numpy.typing import NDArray

import doap
from doap.describer import Describer
from doap.descriptor import SHIPPED
from doap.evaluation.homography import project
from doap.images import draw_matches, read_grey
from doap.images.synthetic_views import warp

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "pictures"
TOLERANCE, KEYPOINTS = 3.0, 1000
PHOTO_SIDE, JPEG_QUALITY = 400, 82
CORNERS = np.array([(0, 0), (599, 0), (599, 399), (0, 399)], np.float32)
TABLE = 70
"""Grey level around a view."""
REPEATED = np.s_[120:253, 180:330]
"""Part of the photo that is repeated in three rows and four columns."""
Grey = NDArray[np.uint8]
View = tuple[Grey, Grey, NDArray[np.float64]]


def main() -> None:
    """Match all cases with all descriptors, and write the pictures and the numbers."""
    options = record.arguments(__doc__).parse_args()
    photo = read_grey(ROOT / "src" / "doap" / "images" / "samples" / "photo.jpg")
    views = {case: make(photo) for case, make in CASES.items()}
    counts: dict[str, dict[str, Any]] = {case: {} for case in CASES}
    for name in (*SHIPPED, "rootsift"):
        # In float32, the result does not depend on the hardware.
        descriptor = doap.load(name, device="cpu", precision="float32")
        pictures = []
        for case, view in views.items():
            counts[case][name], picture = match(view, descriptor, case)
            pictures.append(picture)
        if name in SHIPPED:
            path = PICTURES / f"failures-{name}.jpg"
            cv2.imwrite(str(path), np.vstack(pictures), [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])
    record.write(options.out, options.seed, {"keypoints": KEYPOINTS, "tolerance, px": TOLERANCE, "cases": counts})


def match(view: View, descriptor: Describer, case: str) -> tuple[dict[str, int], Grey]:
    """Return the number of matches and of correct ones, and their picture."""
    image0, image1, homography = view
    features0, features1 = (doap.extract(image, descriptor, max_keypoints=KEYPOINTS) for image in (image0, image1))
    matches = doap.match(features0, features1)
    points0, points1 = matches.points(features0, features1)
    correct = np.linalg.norm(points1 - project(points0, homography), axis=1) <= TOLERANCE
    title = f"{case}: {correct.sum()} of {len(matches)} matches are correct"
    keypoints = (features0.keypoints, features1.keypoints)
    picture = draw_matches(image0, image1, *keypoints, matches.indices, correct, title, longest_side=PHOTO_SIDE)
    return {"matches": len(matches), "correct": int(correct.sum())}, picture


def on_table(photo: Grey, corners: list[tuple[int, int]]) -> View:
    """Return the photo, a view of it in which its corners are at these positions, and the homography."""
    target = np.array(corners, np.float32)
    homography = cv2.getPerspectiveTransform(CORNERS, target)
    side = warp(photo, homography)
    inside = cv2.fillConvexPoly(np.zeros_like(side), target.astype(int), 1)
    side[inside == 0] = TABLE
    return photo, side, homography


def repeated(photo: Grey) -> View:
    """Return an image with twelve copies of a part of the photo, a slightly turned view of it, and the homography."""
    image = np.tile(photo[REPEATED], (3, 4))
    turn = np.vstack([cv2.getRotationMatrix2D((300, 200), 4, 0.97), [0, 0, 1]])
    return image, warp(image, turn), turn


CASES: dict[str, Callable[[Grey], View]] = {
    "view from the side": lambda photo: on_table(photo, [(240, 40), (370, 90), (375, 310), (230, 360)]),
    "a tenth of the size": lambda photo: on_table(photo, [(270, 180), (330, 180), (330, 220), (270, 220)]),
    "negative": lambda photo: (photo, 255 - photo, np.eye(3)),
    "repeated structure": repeated,
}

if __name__ == "__main__":
    main()
