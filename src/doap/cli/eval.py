"""`doap eval DESCRIPTOR… BENCHMARK ROOT --out RESULTS`: evaluate descriptors on a benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from doap.cli.options import AsJson, Device, Seed
from doap.cli.progress import show_progress
from doap.cli.terminal import echo, echo_json

if TYPE_CHECKING:
    from doap.evaluation import Result

RESUME = "Run the same command with --resume to continue."


def evaluate(
    arguments: Annotated[
        list[str],
        typer.Argument(
            metavar="DESCRIPTOR… BENCHMARK ROOT",
            help="Descriptors (`baselines` for all, `pipelines` for learned pipelines, `controls` for descriptors that "
            "must score chance), a benchmark (oxford, phototour, hpatches, romepatches, patches, pose, sfm, "
            "wxbs, speed) and the folder with its data.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder for the results.")],
    detector: Annotated[
        str | None, typer.Option(help="Keypoint detector, the same for all descriptors.", show_default="sift")
    ] = None,
    max_keypoints: Annotated[int | None, typer.Option(min=2, help="Maximum number of keypoints per image.")] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Setting of the benchmark, such as split=b; repeatable."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Keep results in the folder that were measured under the same conditions.")
    ] = False,
    device: Device = "auto",
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Evaluate descriptors side by side on a benchmark."""
    if len(arguments) < 3:
        raise typer.BadParameter("Expected one or more descriptors, a benchmark and a folder.")
    import doap

    *descriptors, benchmark, root = arguments
    settings: dict[str, object] = {"detector": detector, "max_keypoints": max_keypoints}
    settings = {name: value for name, value in settings.items() if value is not None} | _parse(setting or [])
    with show_progress("descriptors", quiet=as_json, resume=RESUME) as progress:
        evaluation = doap.evaluate(
            descriptors,
            benchmark,
            root,
            out,
            settings=settings,
            resume=resume,
            seed=seed,
            device=device,
            progress=progress,
        )
    for descriptor, reason in evaluation.skipped.items():
        echo(f"skipped: {descriptor}: {reason}", err=True)
    results = list(evaluation.results.values())
    if as_json:
        figures = {result.descriptor.name: {one.name: one.total for one in result.figures} for result in results}
        echo_json({"figures": figures, "results": evaluation.file, "skipped": evaluation.skipped})
    elif results:
        _print(results)
        echo(f"next: doap report {out} --out report")
    raise typer.Exit(0 if results else 1)


def _parse(settings: list[str]) -> dict[str, str]:
    parsed = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"Expected NAME=VALUE, got {setting!r}.", param_hint="--set")
        parsed[name.replace("-", "_")] = value
    return parsed


def _print(results: list[Result]) -> None:
    """Print one line per descriptor, best first, with its first four figures."""
    sign = -1 if results[0].headline.better == "higher" else 1
    for result in sorted(results, key=lambda result: sign * result.headline.total.value):
        shown = "  ".join(f"{figure.name} {figure.total.value:.4f}" for figure in result.figures[:4])
        echo(f"{result.descriptor.name:16} {result.descriptor.bytes:5} bytes  {shown}")
