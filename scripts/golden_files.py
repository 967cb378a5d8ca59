"""Write small files of every format to tests/golden, with the content that doap reads from them.

    python scripts/golden_files.py              write the formats that are missing
    python scripts/golden_files.py --out DIR    … to another folder

Each format has a folder NAME-VERSION with its files and `content.json`. A folder that exists is never written again,
because it stands for files of users. After a change of a format, run the script once; it adds a folder for
the new version, and `tests/test_golden_files.py` reads both.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from oracles.golden_content import GOLDEN, ROOT, Golden, describe, plain


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT, help="folder of the golden files")
    options = parser.parse_args()
    for name, golden in GOLDEN.items():
        folder = options.out / f"{name}-{golden.version}"
        if folder.exists():
            print(f"{folder.name}: exists")
            continue
        write(golden, folder)
        print(f"{folder.name}: {sum(path.stat().st_size for path in folder.rglob('*') if path.is_file()):,} bytes")


def write(golden: Golden, folder: Path) -> None:
    """Write the files of a format and their content."""
    with tempfile.TemporaryDirectory() as scratch:
        written, kept = Path(scratch) / "written", Path(scratch) / "kept"
        written.mkdir()
        golden.write(written)
        for path in sorted(path for pattern in golden.files for path in written.glob(pattern)):
            target = kept / path.relative_to(written)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
        content = {"content": plain(golden.content(kept))}
        for path in kept.glob("weights.*"):
            content["described"] = describe(path)
        (kept / "content.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        shutil.copytree(kept, folder)


if __name__ == "__main__":
    main()
