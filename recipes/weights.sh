#!/usr/bin/env bash
# Train the shipped descriptors from the photos with a licence ledger:
#
#     recipes/weights.sh PHOTOS SETS RUNS TRACKS
#
# SETS contains the sets of recipes/photos-sets.sh; sets of wider patches are added to it. TRACKS contains the sets of
# `recipes/track-sets.sh DATA TRACKS 1`; the shipped doap-128 and doap-256bit used 9 of their 20 scenes, doap-fast 16. The
# first three runs use two processes on two cores, the others one. The model cards in src/doap/weights list the results.
# Resumable: rerun the same command to continue.
set -euo pipefail
photos=$(realpath "$1") runs=$(realpath -m "$3") tracks=$(realpath "$4") recipes=$(cd "$(dirname "$0")" && pwd)/weights
# Run inside SETS: the weights record the paths of the sets, which must not contain folders of this machine.
cd "$2"
cut_set() { # SPLIT SET EXTENT [OPTION…]
  [ -e "$2.patches" ] || doap data from-images "$photos" --ledger "$photos/LEDGER.csv" --split "$1" \
    --out "$2.patches" --extent "$3" --workers 2 "${@:4}"
}
cut_set train wide 1.5 --no-tracks --without-tracks single --views 4
cut_set train wider 1.75 --no-tracks --without-tracks single --views 5 --seed 1
# The shipped weights were validated on patches of 12 σ in all runs. The width must now be that of the training set.
cut_set val wide-val 1.5
cut_set val wider-val 1.75

train() { # RECIPE SET VALIDATION RUN [LAUNCHER…]
  OMP_NUM_THREADS=1 "${@:5}" -m doap train "$recipes/$1.toml" --data "$2.patches" --validation "$3.patches" \
    --out "$runs/$4"
  cp "$runs/$4/last.safetensors" "$4.safetensors"
}
two=(torchrun --nproc-per-node=2)
train 1-narrow train val narrow "${two[@]}"
train 2-wide wide wide-val wide "${two[@]}"
train 3-wider wider wider-val wider "${two[@]}"

# Tracks and synthetic views at SIFT's support.
grep -E '^file,|,single,' "$photos/LEDGER.csv" > single.csv
[ -e views.patches ] || doap data from-images "$photos" --ledger single.csv --split train \
  --out views.patches --no-tracks --without-tracks single --views 4 --keypoints 300 --seed 2 --workers 2
[ -e tracks-views.patches ] || doap data merge "$tracks/train.patches" views.patches --out tracks-views.patches
ln -sfn "$tracks/val.patches" tracks-val.patches
train 4-tracks tracks-views tracks-val tracks python
train 5-bits tracks-views tracks-val bits python
train 6-fast tracks-views tracks-val fast python
