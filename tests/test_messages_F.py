"""Messages that users meet most often name the subject and the remedy."""

import pytest

import doap
from doap._support.errors import DoapError, import_extra
from doap.export.pairs import resolve_pairs


@pytest.mark.parametrize(
    ("call", "pieces"),
    [
        (lambda out: doap.export_descriptor("sift", out), ["sift: no such file", "*.safetensors", "doap-128"]),
        (
            lambda out: doap.write_hloc(out, out, "rootsift", pairs="exhaustive"),
            ["pairs and matches", "both or neither"],
        ),
        (lambda out: resolve_pairs([("0.png", "9.png")], ["0.png"]), ["'9.png'", "paths inside the folder of images"]),
        (lambda out: import_extra("no_such_module", "colmap"), ["no_such_module", "pip install 'doap[colmap]'"]),
    ],
)
def test_a_message_names_the_subject_and_the_remedy(call, pieces, tmp_path):
    with pytest.raises(DoapError) as raised:
        call(tmp_path)
    assert all(piece in str(raised.value) for piece in pieces), raised.value
