#!/usr/bin/env bash
# Adapt the shipped descriptor to another kind of photos, and measure on held-out photos whether it helps:
#
#     recipes/own-photos.sh PHOTOS REGRESSION_SET WORK
#
# PHOTOS contains photos of one scene in the order in which they were taken, here near-infrared aerial photos. The first
# half is for training, the next sixth for selecting the weights, and the last third, another part of the field, for
# testing. REGRESSION_SET is a patch set on which mAP must not drop. docs/own-photos.md has the results. Resumable: rerun
# the same command to continue.
set -euo pipefail
photos=$(realpath "$1") regression_set=$(realpath "$2") recipes=$(cd "$(dirname "$0")" && pwd)
extent=$(python -c 'import doap; print(doap.load("doap-128").extent)')
mkdir -p "$3"
cd "$3"
mapfile -t names < <(ls "$photos")
count=${#names[@]}
for number in "${!names[@]}"; do
  if ((2 * number < count)); then part=train; elif ((3 * number < 2 * count)); then part=validation; else part=test; fi
  mkdir -p $part
  cp -n "$photos/${names[number]}" $part/
done

doap compare test --descriptor doap-128 --out report-before
for part in train validation test; do
  # In a field, where everything is similar, training on tracks gave less than training on synthetic views only. Tracks
  # are used for validation and testing.
  tracks=$([ $part = train ] && echo --no-tracks || echo --tracks)
  [ -e $part.patches ] || doap data from-images $part --out $part.patches --extent "$extent" --workers 2 "$tracks"
done
doap train "$recipes/finetune.toml" --data train.patches --validation validation.patches \
  --regression-set "$regression_set" --init doap-128 --budget 20m --out adapted
cp adapted/best.safetensors adapted.safetensors

doap eval sift rootsift doap-128 adapted.safetensors patches test.patches --out results
doap compare test --descriptor adapted.safetensors --baselines doap-128,rootsift,sift --out report-after
for descriptor in rootsift doap-128 adapted.safetensors; do
  doap colmap test --descriptor $descriptor --out "${descriptor%.safetensors}.db"
done
