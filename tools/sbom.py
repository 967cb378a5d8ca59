"""Write a CycloneDX bill of materials of doap and its installed dependencies, and list their licences.

    python tools/sbom.py dist/doap.cdx.json            dependencies of doap
    python tools/sbom.py dist/doap.cdx.json --extra all

Names, versions and licences come from the metadata of the installed packages. The file contains no date and no random
number, so the same environment gives the same bytes.
"""

from __future__ import annotations

import argparse
import json
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

_CLASSIFIER = "License :: OSI Approved :: "


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="JSON file to write")
    parser.add_argument("--extra", default="", help="extra of doap whose dependencies are included")
    options = parser.parse_args()
    packages = installed_packages(distribution("doap"), options.extra)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(
        json.dumps(bill_of_materials(packages), indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    for package in packages:
        print(f"{package.name} {package.version}: {licence_of(package)}")
    if unknown := [package.name for package in packages if licence_of(package) == "unknown"]:
        sys.exit(f"expected a licence in the metadata of every dependency, got none for {', '.join(unknown)}")


def installed_packages(root: Distribution, extra: str) -> list[Distribution]:
    """Return the direct and indirect dependencies of a package that this machine needs, sorted by name."""
    found: dict[str, Distribution] = {}
    waiting, seen = [(root, {extra, ""})], {(root.name, frozenset([extra]))}
    while waiting:
        package, extras = waiting.pop()
        for requirement in map(Requirement, package.requires or []):
            marker = requirement.marker
            if marker and not any(marker.evaluate({"extra": one}) for one in extras):
                continue
            key = (requirement.name.lower(), frozenset(requirement.extras))
            if key in seen:
                continue
            seen.add(key)
            try:
                needed = distribution(requirement.name)
            except PackageNotFoundError:
                sys.exit(f"{requirement.name}: required by {package.name}, but not installed.")
            waiting.append((needed, {*requirement.extras, ""}))
            if needed.name != root.name:
                found[normalised(needed)] = needed
    return [found[name] for name in sorted(found)]


def normalised(package: Distribution) -> str:
    """Return the name of a package as package URLs spell it."""
    return package.name.lower().replace("_", "-")


def licence_of(package: Distribution) -> str:
    """Return the licence that a package declares: an SPDX expression, a classifier, or the first line of a text."""
    metadata = package.metadata
    classifiers = [
        line.removeprefix(_CLASSIFIER) for line in metadata.get_all("Classifier") or [] if line.startswith(_CLASSIFIER)
    ]
    text = (metadata.get("License") or "").strip().split("\n")[0]
    return metadata.get("License-Expression") or " and ".join(classifiers) or text or "unknown"


def bill_of_materials(packages: list[Distribution]) -> dict[str, Any]:
    """Return a CycloneDX document."""
    doap = distribution("doap")
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": component("application", doap)},
        "components": [component("library", package) for package in packages],
    }


def component(kind: str, package: Distribution) -> dict[str, Any]:
    name = normalised(package)
    expression = package.metadata.get("License-Expression")
    licence = {"expression": expression} if expression else {"license": {"name": licence_of(package)}}
    return {
        "type": kind,
        "name": name,
        "version": package.version,
        "purl": f"pkg:pypi/{name}@{package.version}",
        "licenses": [licence],
    }


if __name__ == "__main__":
    main()
