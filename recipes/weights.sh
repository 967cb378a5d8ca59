#!/usr/bin/env bash
# Train the shipped descriptors from the photos with a licence ledger:
#
#     recipes/weights.sh PHOTOS SETS RUNS TRACKS
#
# SETS contains the sets of recipes/photos-sets.sh; sets of wider patches are added to it. TRACKS contains the sets of
# `recipes/track-sets.sh DATA TRACKS 1`; the shipped doap-fast used 16 of their 20 scenes. Runs 1 to 6 use two processes
# on two cores, run 7 uses one. The model cards in src/doap/weights list the results. Resumable: rerun the same command
# to continue.
set -euo pipefail
photos=$(realpath "$1") runs=$(realpath -m "$3") tracks=$(realpath "$4") recipes=$(cd "$(dirname "$0")" && pwd)/weights
# Run inside SETS: the weights record the paths of the sets, which must not contain folders of this machine.
cd "$2"
cut_set() { # SET EXTENT VIEWS SEED
  [ -e "$1.patches" ] || doap data from-images "$photos" --ledger "$photos/LEDGER.csv" --split train \
    --out "$1.patches" --no-tracks --without-tracks single --extent "$2" --views "$3" --seed "$4" --workers 2
}
cut_set wide 1.5 4 0
cut_set wider 1.75 5 1

train() { # RECIPE SET RUN
  OMP_NUM_THREADS=1 torchrun --nproc-per-node=2 -m doap train "$recipes/$1.toml" --data "$2.patches" \
    --validation val.patches --out "$runs/$3"
  cp "$runs/$3/last.safetensors" "$3.safetensors"
}
train 1-narrow train narrow
train 2-wide wide wide
train 3-wider wider wider
train 4-bits wider bits
train 5-straight-through wider straight-through
train 6-straight-through wider straight-through-2

# Tracks and synthetic views at SIFT's support.
grep -E '^file,|,single,' "$photos/LEDGER.csv" > single.csv
[ -e views.patches ] || doap data from-images "$photos" --ledger single.csv --split train \
  --out views.patches --no-tracks --without-tracks single --views 4 --keypoints 300 --seed 2 --workers 2
[ -e tracks-views.patches ] || doap data merge "$tracks/train.patches" views.patches --out tracks-views.patches
OMP_NUM_THREADS=1 doap train "$recipes/7-fast.toml" --data tracks-views.patches --validation "$tracks/val.patches" \
  --out "$runs/fast"
