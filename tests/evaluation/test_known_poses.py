"""Scenes with known poses: the intrinsics that were used to render them are recovered."""

import cv2
import numpy as np
import pycolmap
import pytest

from doap._support.errors import DataError
from doap.evaluation.known_poses import build_posed_scenes, read_poses
from doap.evaluation.posed_scenes import read_posed_pairs
from doap.geometry.pose import Pose
from oracles.corner_scene import ANGLES, FOCAL, pose, render

HEADER = "file,model,rotation_matrix,translation_vector"


def known_pose(angle):
    matrix = pose(angle)
    return Pose(matrix[:, :3], matrix[:, 3])


def row(file, model, pose):
    rotation = ";".join(f"{value:.17g}" for value in pose.rotation.ravel())
    translation = ";".join(f"{value:.17g}" for value in pose.translation)
    return f"{file},{model},{rotation},{translation}"


@pytest.fixture(scope="module")
def rendered(tmp_path_factory):
    """Write a rendered scene and the CSV of its poses."""
    folder = tmp_path_factory.mktemp("rendered")
    (folder / "corner").mkdir()
    lines = []
    for number, angle in enumerate(ANGLES):
        cv2.imwrite(str(folder / "corner" / f"{number}.png"), render(pose(angle)))
        lines.append(row(f"corner/{number}.png", "models/corner", known_pose(angle)))
    (folder / "poses.csv").write_text("\n".join([HEADER, *lines]) + "\n", encoding="utf-8")
    return folder


def test_focal_length_is_recovered_and_poses_are_kept(rendered, tmp_path):
    names = []
    (built,) = build_posed_scenes(
        [(rendered / "poses.csv", rendered)],
        tmp_path,
        max_keypoints=600,
        progress=lambda _done, _total, name: names.append(name),
    )
    # Steps of COLMAP that take minutes on larger scenes.
    assert {"geometric verification", "triangulation and refinement"} <= set(names)
    model = pycolmap.Reconstruction(built / "sparse")
    truth = read_poses(rendered / "poses.csv")["corner"]
    assert model.num_points3D() > 100
    assert model.compute_mean_reprojection_error() < 1
    for image in model.images.values():
        stored = image.cam_from_world()
        expected = truth[f"corner/{image.name}"]
        np.testing.assert_allclose(stored.rotation.matrix(), expected.rotation, atol=1e-9)
        np.testing.assert_allclose(stored.translation, expected.translation, atol=1e-9)
    focal = [camera.params[0] for camera in model.cameras.values()]
    assert np.median(focal) == pytest.approx(FOCAL, rel=0.02)
    overlaps = [pair.overlap for pair in read_posed_pairs(tmp_path)]
    assert len(overlaps) > 3
    assert all(0 < overlap <= 1 for overlap in overlaps)


def test_matches_of_a_second_descriptor_are_added(rendered, tmp_path):
    options = {"descriptors": ["rootsift", "teblid"], "max_keypoints": 300}
    (built,) = build_posed_scenes([(rendered / "poses.csv", rendered)], tmp_path, **options)
    first, second, merged = (verified(built / name) for name in ("database.db", "database-1.db", "merged.db"))
    assert merged.keys() == first.keys() | second.keys()
    added = 0
    for pair, matches in merged.items():
        known = first.get(pair, set())
        assert known <= matches <= known | second.get(pair, set())
        # A keypoint has at most one match per image pair.
        assert len({one for one, _ in matches}) == len({other for _, other in matches}) == len(matches)
        # Each match that was left out would have given a keypoint a second match.
        used0, used1 = {one for one, _ in known}, {other for _, other in known}
        assert all(one in used0 or other in used1 for one, other in second.get(pair, set()) - matches)
        added += len(matches - known)
    assert added > 10


def verified(database):
    """Return the verified matches of each image pair."""
    with pycolmap.Database.open(database) as opened:
        pairs, geometries = opened.read_two_view_geometries()
    return {
        pair: {tuple(match) for match in geometry.inlier_matches.tolist()}
        for pair, geometry in zip(pairs, geometries, strict=True)
    }


def test_a_finished_scene_is_not_built_again(rendered, tmp_path):
    (tmp_path / "corner" / "sparse").mkdir(parents=True)
    assert build_posed_scenes([(rendered / "poses.csv", rendered)], tmp_path) == [tmp_path / "corner"]
    assert not (tmp_path / "corner" / "images").exists()


def test_models_of_one_folder_become_scenes_of_their_own(tmp_path):
    known = known_pose(0)
    file = tmp_path / "poses.csv"
    lines = [
        row("stairs/1.jpg", "up/one", known),
        row("stairs/2.jpg", "up/two", known),
        row("pond/1.jpg", "x/pond", known),
    ]
    file.write_text("\n".join([HEADER, *lines]), encoding="utf-8")
    scenes = read_poses(file)
    assert {name: list(files) for name, files in scenes.items()} == {
        "up-one": ["stairs/1.jpg"],
        "up-two": ["stairs/2.jpg"],
        "pond": ["pond/1.jpg"],
    }


@pytest.mark.parametrize(
    "content",
    [
        b"",
        HEADER.encode(),
        b"Four score\nand seven years ago\n",
        b"\x89PNG\r\n\x1a\n\x00\xff",
        f"{HEADER}\nbox/1.jpg,m,1;2;3,0;0;0".encode(),
        f"{HEADER}\nbox/1.jpg,m,1;0;0;0;1;0;0;0;1,0;0".encode(),
        f"{HEADER}\nbox/1.jpg,m,x,y".encode(),
        f"{HEADER}\na/b.png,m,{';'.join('123456789')},nan;0;0".encode(),
        f"{HEADER}\n/etc/passwd,m,1;0;0;0;1;0;0;0;1,0;0;0".encode(),
        f"{HEADER}\nbox/1.jpg,..,1;0;0;0;1;0;0;0;1,0;0;0".encode(),
    ],
)
def test_a_file_with_other_contents_is_refused(tmp_path, content):
    (tmp_path / "poses.csv").write_bytes(content)
    with pytest.raises(DataError):
        read_poses(tmp_path / "poses.csv")
