"""Count the patches and groups that each scene contributes to the project's own sets.

    python benchmarks/sets.py SETS --seconds train=3280 --out results/sets.json

SETS is the folder that recipes/photos-sets.sh filled; `--seconds` records the build times measured with `time`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import record

from doap.data.sampler import from_tracks
from doap.data.store import PatchSet, open_set


def main() -> None:
    parser = record.arguments(__doc__)
    parser.add_argument("sets", type=Path, help="folder of patch sets")
    parser.add_argument("--seconds", nargs="*", default=[], metavar="SPLIT=SECONDS", help="build times")
    options = parser.parse_args()
    seconds = dict(pair.split("=") for pair in options.seconds)
    figures = {}
    for path in sorted(options.sets.glob("*.patches")):
        counts = statistics(path)
        if path.stem in seconds:
            counts["build_seconds"] = float(seconds[path.stem])
        print(path.stem, {name: value for name, value in counts.items() if name != "scenes"})
        figures[path.stem] = counts
    record.write(options.out, options.seed, {"sets": figures})


def statistics(path: Path) -> dict[str, object]:
    """Return the numbers of patches and groups from tracks and from synthetic views, in total and by scene."""
    patch_set = open_set(path)
    tracks = from_tracks(patch_set)
    # Photos that are scenes of their own are counted together, by their folder.
    names = np.array([name.split("/")[0] for name in patch_set.scene_names])[patch_set.scene_ids]

    def count(selected: np.ndarray) -> dict[str, int]:
        return {"patches": int(patch_set.count[selected].sum()), "groups": int(selected.sum())}

    scenes = {
        str(name): {"tracks": count((names == name) & tracks), "views": count((names == name) & ~tracks)}
        for name in np.unique(names)
    }
    everything = np.ones(len(patch_set), dtype=bool)
    copies = second_copies(patch_set, np.flatnonzero(tracks))
    totals = {"tracks": count(tracks), "views": count(~tracks), "second copies among tracks": count(copies)}
    return {**count(everything), **totals, "scenes": scenes}


def second_copies(patch_set: PatchSet, groups: np.ndarray) -> np.ndarray:
    """Return (G,) bool: groups that contain a patch of an earlier group of the same scene."""
    copies, seen = np.zeros(len(patch_set), dtype=bool), set()
    for group in groups:
        members = patch_set.gather(patch_set.members(np.array([group])))
        found = {(int(patch_set.scene_ids[group]), patch.tobytes()) for patch in members}
        copies[group] = not found.isdisjoint(seen)
        if not copies[group]:
            seen |= found
    return copies


if __name__ == "__main__":
    main()
