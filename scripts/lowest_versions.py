"""Print the lowest declared version of every dependency as constraints for pip.

    python scripts/lowest_versions.py >lowest.txt
    python -m pip install -c lowest.txt -e '.[all,dev]'

Tools for development (extras `dev` and `docs`) are left out: only the lower bounds for users are promised.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LEFT_OUT = ("all", "dev", "docs", "examples")


def lowest(project: dict[str, list[str] | dict[str, list[str]]]) -> list[str]:
    """Return one line `name==version` per dependency, sorted; a lower bound `2.5` is the version 2.5.0.

    Raises:
        ValueError: A dependency has no lower bound.
    """
    extras = {name: rows for name, rows in project["optional-dependencies"].items() if name not in LEFT_OUT}
    found = set()
    for requirement in [*project["dependencies"], *(row for rows in extras.values() for row in rows)]:
        match = re.match(r"([\w-]+)(?:\[\w+\])?>=([\d.]+)(; .+)?$", requirement)
        if not match:
            raise ValueError(f"{requirement}: expected name>=version")
        found.add(f"{match[1]}=={match[2]}{match[3] or ''}")
    return sorted(found)


if __name__ == "__main__":
    pyproject = Path(__file__).resolve().parents[1] / "pyproject.toml"
    print("\n".join(lowest(tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"])))
