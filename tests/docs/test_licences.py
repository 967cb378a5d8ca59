"""The README names every licence of the photos that the shipped weights were trained on."""

from collections import Counter
from pathlib import Path

import doap
from doap.descriptor import SHIPPED

README = Path(__file__).parents[2] / "README.md"


def test_the_readme_names_the_licences_of_the_ledgers():
    text = " ".join(README.read_text(encoding="utf-8").partition("## Licence and citation")[2].split())
    ledgers = [doap.Descriptor.load(name).metadata["ledger"] for name in SHIPPED]
    licences = Counter({row["file"]: row["licence"] for ledger in ledgers for row in ledger}.values())
    known = {"Apache-2.0", "CC0", "CC0-1.0", "CC-BY-2.0", "CC-BY-3.0", "CC-BY-4.0", "CC-BY-4.0 (also GPL)", "PDM"}
    assert set(licences) == known
    for part in ("Apache-2.0", "CC-BY (2.0, 3.0 and 4.0", "CC0", "one public-domain photo (PDM)"):
        assert part in text
    assert f"{licences['CC-BY-4.0 (also GPL)']} photos under CC-BY-4.0 are also offered under the GPL" in text
    assert licences["PDM"] == 1
