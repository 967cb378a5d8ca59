"""COLMAP databases as the tests write and read them."""

import sqlite3
from contextlib import closing

from doap.baselines import rootsift
from doap.export.colmap import write_colmap

MAX_KEYPOINTS = 150


def write(photos, out, **arguments):
    descriptor = arguments.pop("descriptor", rootsift())
    chosen = {"detector": "sift", "max_keypoints": MAX_KEYPOINTS, "ratio": 1, **arguments}
    return write_colmap(photos, out, descriptor, **chosen)


def ids(opened):
    return {image.name: image.image_id for image in opened.read_all_images()}


def content(path):
    """Everything that COLMAP reads, as plain values."""
    with closing(sqlite3.connect(path)) as opened:
        tables = [row[0] for row in opened.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY 1")]
        return {table: sorted(map(repr, opened.execute(f"SELECT * FROM {table}"))) for table in tables}
