#!/usr/bin/env bash
# Copy the frozen scenes of recipes/scenes and their photos to a folder that benchmarks can read:
#
#     recipes/scenes.sh DATA evaluation|train SCENES
#
# DATA contains photos and, for `evaluation`, photos_more.
set -euo pipefail
data=$1 scenes=$3
mkdir -p "$scenes"
cp -r "$(dirname "$0")/scenes/$2/." "$scenes"
for scene in "$scenes"/*/; do
  mkdir -p "$scene/images"
  cut -d' ' -f1,2 "$scene/pairs.txt" | tr ' ' '\n' | sort -u | while read -r photo; do
    cp "$data"/photos*/"$(basename "$scene")/$photo" "$scene/images"
  done
done
