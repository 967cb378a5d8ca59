"""`doap compare PHOTOS --baselines sift,rootsift --out REPORT`: should I switch?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from doap.cli.options import DEFAULT_DESCRIPTOR, DESCRIPTOR_HELP, AsJson, Detector, Device, MaxKeypoints, Seed
from doap.cli.progress import show_progress
from doap.cli.terminal import echo, echo_json

if TYPE_CHECKING:
    from doap.evaluation import Comparison


def compare(
    photos: Annotated[
        list[Path], typer.Argument(metavar="PHOTOS", help="At least six of your photos, or folders of photos.")
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder for index.html and comparison.json.")],
    descriptor: Annotated[str, typer.Option(help=f"Candidate: {DESCRIPTOR_HELP}")] = DEFAULT_DESCRIPTOR,
    baselines: Annotated[
        str, typer.Option(help="Comma-separated descriptors to compare with, for example the one you use now.")
    ] = "sift,rootsift",
    detector: Detector = None,
    max_keypoints: MaxKeypoints = 2048,
    max_photos: Annotated[int, typer.Option(min=6, help="Maximum number of photos, spread over all.")] = 20,
    reconstruction: Annotated[
        bool, typer.Option("--reconstruction/--no-reconstruction", help="Also reconstruct with COLMAP.")
    ] = True,
    device: Device = "auto",
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Should I switch? Compare a descriptor with others on your own photos; the answer may be to stay."""
    import doap

    with show_progress("photos", quiet=as_json) as progress:
        comparison = doap.compare(
            photos,
            out,
            descriptor=descriptor,
            baselines=[name.strip() for name in baselines.split(",") if name.strip()],
            detector=detector,
            max_keypoints=max_keypoints,
            max_photos=max_photos,
            reconstruction=reconstruction,
            seed=seed,
            device=device,
            progress=progress,
        )
    for reason in comparison.skipped.values():
        echo(f"skipped: {reason}", err=True)
    if as_json:
        echo_json(comparison.to_json())
        return
    _print(comparison)
    echo(f"Wrote {out / 'index.html'}")


def _print(comparison: Comparison) -> None:
    """Print the figures, one column per descriptor, then the verdict."""
    for stage, results in comparison.results.items():
        if not results:
            echo(f"no {stage}: {comparison.notes[stage]}")
            continue
        echo(f"{stage:30}" + "".join(f"{result.descriptor.name:>14}" for result in results))
        for figure in results[0].figures:
            totals = [found.total.value if (found := result.figure(figure.name)) else None for result in results]
            echo(f"{figure.name:30}" + "".join(f"{'–' if one is None else f'{one:,.3f}':>14}" for one in totals))
    echo(comparison.verdict.sentence)
