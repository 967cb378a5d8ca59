"""`doap export`, `colmap`, `hloc` and `opensfm`: deliver descriptors, features and matches to other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from doap._support.text import counted
from doap.cli.options import (
    DEFAULT_DESCRIPTOR,
    AsJson,
    Descriptor,
    Detector,
    Device,
    Masks,
    MaxKeypoints,
    Ratio,
    Tile,
    Verify,
    count_masks,
    report_extraction,
)
from doap.cli.progress import SAME_COMMAND, show_progress
from doap.cli.terminal import echo, echo_json

COLMAP_COMMANDS = """\
  COLMAP 4 with ONNX runs it:
    colmap feature_extractor --database_path DATABASE --image_path IMAGES --FeatureExtraction.type ALIKED_N16ROT \\
      --AlikedExtraction.n16rot_model_path {out} --AlikedExtraction.max_num_features 8192
    colmap exhaustive_matcher --database_path DATABASE --FeatureMatching.type ALIKED_BRUTEFORCE \\
      --AlikedMatching.brute_force_min_cossim 0"""
"""Without the last flag, COLMAP would drop matches with a cosine similarity below 0.85, which suits ALIKED."""
Images = Annotated[Path, typer.Argument(help="Folder of images, searched recursively.")]


def export(
    descriptor: Annotated[str, typer.Argument(help="doap-128, doap-256bit, doap-fast, or a *.safetensors file.")],
    out: Annotated[Path, typer.Option("--out", help="File to write, such as my.onnx.")],
    to: Annotated[
        str,
        typer.Option(help="onnx: patches to descriptors; colmap: images to keypoints and descriptors, for COLMAP 4."),
    ] = "onnx",
    int8: Annotated[
        Path | None, typer.Option(help="Quantise convolutions to int8, calibrated on this patch set.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Export a descriptor to an ONNX file and verify that its outputs match PyTorch."""
    import doap

    written = doap.export_descriptor(descriptor, out, to=to, calibration=int8)
    if as_json:
        echo_json({**vars(written), "format": to})
        return
    echo(f"{out}: {written.precision}, opset {written.opset}, {out.stat().st_size / 1e6:.1f} MB")
    echo(
        f"  parity with PyTorch on {written.patches} patches: agreement {written.agreement:.6f}, "
        f"largest difference {written.max_difference:.2g}"
    )
    if to == "colmap":
        echo(COLMAP_COMMANDS.format(out=out))
    else:
        echo(f"  try it: doap match left.jpg right.jpg --descriptor {out}")


def colmap(
    images: Images,
    out: Annotated[Path, typer.Option("--out", help="Database file to write.")],
    descriptor: Descriptor = DEFAULT_DESCRIPTOR,
    detector: Annotated[
        str | None, typer.Option(help="Keypoint detector.", show_default="colmap-default, or its own")
    ] = None,
    max_keypoints: Annotated[int, typer.Option(min=1, help="Maximum per image, counted as in COLMAP.")] = 8192,
    masks: Masks = None,
    tile: Tile = None,
    verify: Verify = False,
    pairs: Annotated[
        str, typer.Option(help="exhaustive, sequential, or a text file with two image names per line.")
    ] = "exhaustive",
    overlap: Annotated[int, typer.Option(min=1, help="With sequential: number of following images.")] = 10,
    ratio: Ratio = None,
    max_error: Annotated[
        float, typer.Option(min=0.1, help="Maximum epipolar error in pixels of a verified match.")
    ] = 1.0,
    camera_mode: Annotated[
        Literal["auto", "single", "per-folder", "per-image"],
        typer.Option(
            metavar="<mode>", help="Images that share a camera: auto (by EXIF), single, per-folder, per-image."
        ),
    ] = "auto",
    no_matches: Annotated[bool, typer.Option("--no-matches", help="Leave matching to COLMAP's matcher.")] = False,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Write a COLMAP database with keypoints, descriptors and verified matches.

    Resumable: rerun the same command to continue.
    """
    import doap

    with show_progress("images", quiet=as_json, resume=SAME_COMMAND) as progress:
        written = doap.write_colmap(
            images,
            out,
            descriptor,
            detector=detector,
            max_keypoints=max_keypoints,
            masks=masks,
            tile=tile,
            verify=verify,
            pairs=None if no_matches else pairs,
            overlap=overlap,
            ratio=ratio,
            max_error=max_error,
            camera_mode=camera_mode,
            device=device,
            progress=progress,
        )
    for reason in written.skipped.values():
        echo(f"skipped: {reason}", err=True)
    if as_json:
        echo_json(written)
        return
    state = "already up to date" if written.unchanged else "written"
    echo(f"{out}: {state}; {counted(written.images, 'image')}, {counted(written.keypoints, 'keypoint')}")
    if written.masks is not None:
        echo(count_masks(written.masks))
    if written.descriptors:
        echo("  descriptors have the label SIFT for COLMAP's own matcher; do not use its SIFT LightGlue with them")
    if no_matches:
        echo(f"  match: colmap exhaustive_matcher --database_path {out}")
    else:
        verified = counted(written.verified_matches, "verified match")
        echo(f"  {counted(written.matches, 'match')} in {counted(written.pairs, 'image pair')}")
        echo(f"  {verified} in {counted(written.verified_pairs, 'image pair')}")
    echo(f"  next: colmap mapper --database_path {out} --image_path {images} --output_path sparse")


def hloc(
    images: Images,
    out: Annotated[Path, typer.Option("--out", help="HDF5 file for the features.")],
    pairs: Annotated[Path | None, typer.Option(help="Text file with two image names per line, to be matched.")] = None,
    matches: Annotated[Path | None, typer.Option(help="HDF5 file for the matches of --pairs.")] = None,
    descriptor: Descriptor = DEFAULT_DESCRIPTOR,
    detector: Detector = None,
    max_keypoints: MaxKeypoints = 8192,
    masks: Masks = None,
    tile: Tile = None,
    verify: Verify = False,
    ratio: Ratio = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Write features, and matches, in hloc's HDF5 format. Resumable: rerun the same command to continue."""
    if (pairs is None) != (matches is None):
        raise typer.BadParameter("--pairs and --matches require each other.")
    import doap

    with show_progress("images", quiet=as_json, resume=SAME_COMMAND) as progress:
        done = doap.write_hloc(
            images,
            out,
            descriptor,
            detector=detector,
            max_keypoints=max_keypoints,
            masks=masks,
            tile=tile,
            verify=verify,
            pairs=pairs,
            matches=matches,
            ratio=ratio,
            device=device,
            progress=progress,
        )
    report_extraction(done, out, as_json)
    if matches is not None and not as_json:
        echo(f"{matches}: {counted(done.pairs, 'pair')}")


def opensfm(
    images: Images,
    out: Annotated[Path, typer.Option("--out", help="Folder of the files: features in an OpenSfM project.")],
    descriptor: Descriptor = DEFAULT_DESCRIPTOR,
    detector: Detector = None,
    max_keypoints: MaxKeypoints = 8192,
    masks: Masks = None,
    tile: Tile = None,
    verify: Verify = False,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Write feature files of OpenSfM and ODM. Resumable: rerun the same command to continue."""
    import doap

    with show_progress("images", quiet=as_json, resume=SAME_COMMAND) as progress:
        done = doap.write_opensfm(
            images,
            out,
            descriptor,
            detector=detector,
            max_keypoints=max_keypoints,
            masks=masks,
            tile=tile,
            verify=verify,
            device=device,
            progress=progress,
        )
    report_extraction(done, out, as_json)
