"""The registry of export formats."""

from doap.descriptor import Descriptor
from doap.export import EXPORTERS, ExportSummary, export_descriptor
from oracles.photo_patches import write_set
from oracles.photos import write_photo


def test_a_registered_exporter_receives_the_network_and_the_calibration_set(tmp_path, monkeypatch):
    received = []

    def exporter(descriptor, out, calibration):
        received.extend([descriptor, out, calibration])
        return ExportSummary(out, None, "float32", 0, 0.0, 1.0)

    monkeypatch.setitem(EXPORTERS, "mine", exporter)
    patches = write_set(tmp_path / "my.patches", write_photo(tmp_path / "photo.png", 0), max_keypoints=20)
    network = Descriptor.build()
    export_descriptor(network, str(tmp_path / "my.file"), to="mine", calibration=patches)
    assert received[0] is network
    assert (received[1], len(received[2].patches)) == (tmp_path / "my.file", 20)
