#!/usr/bin/env bash
# Adapt the descriptor that ships to photographs of another kind, and see whether it helps on the rest of them:
#
#     recipes/own-photos.sh PHOTOS GENERAL_SET WORK
#
# PHOTOS holds photos of one place in the order in which they were taken, here near-infrared ones from the air. The first
# half is trained on, the next sixth chooses the weights, and the last third, another part of the field, judges.
# GENERAL_SET is a set that must not suffer. docs/own-photos.md says what came out. Killed? The same command resumes.
set -euo pipefail
photos=$(realpath "$1") general=$(realpath "$2") recipes=$(cd "$(dirname "$0")" && pwd)
extent=$(python -c 'import doap; print(doap.load("doap-128").extent)')
mkdir -p "$3"
cd "$3"
mapfile -t names < <(ls "$photos")
count=${#names[@]}
for number in "${!names[@]}"; do
  if ((2 * number < count)); then part=train; elif ((3 * number < 2 * count)); then part=choose; else part=judge; fi
  mkdir -p $part
  cp -n "$photos/${names[number]}" $part/
done

doap compare judge --descriptor doap-128 --out report-before
for part in train choose judge; do
  # In a field, where all looks alike, tracks taught less than made-up views alone; they are for choosing and judging.
  tracks=$([ $part = train ] && echo --no-tracks || echo --tracks)
  [ -e $part.patches ] || doap data from-images $part --out $part.patches --extent "$extent" --workers 2 "$tracks"
done
doap train "$recipes/finetune.toml" --data train.patches --validation choose.patches --general "$general" \
  --init doap-128 --budget 20m --out adapted
cp adapted/best.safetensors adapted.safetensors

doap eval sift rootsift doap-128 adapted.safetensors patches judge.patches --out results
doap compare judge --descriptor adapted.safetensors --against doap-128,rootsift,sift --out report-after
for descriptor in rootsift doap-128 adapted.safetensors; do
  doap colmap judge --descriptor $descriptor --out "${descriptor%.safetensors}.db"
done
