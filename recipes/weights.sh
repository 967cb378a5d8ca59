#!/usr/bin/env bash
# Train descriptors like the shipped ones from the photos with a licence ledger:
#
#     recipes/weights.sh PHOTOS SETS RUNS TRACKS
#
# SETS contains the sets of recipes/photos-sets.sh; sets of wider patches are added to it. TRACKS contains the sets of
# `recipes/track-sets.sh DATA TRACKS 1.5 1`. The first three runs use two processes on two cores, the others one.
# Resumable: rerun the same command to continue.
#
# The weights differ from the shipped ones: those used 10 of the 20 scenes of tracks, with other matches, and their
# first run was stopped after 21 of its 60 minutes. The model cards in src/doap/weights list the results.
set -euo pipefail
photos=$(realpath "$1") runs=$(realpath -m "$3") tracks=$(realpath "$4") recipes=$(cd "$(dirname "$0")" && pwd)/weights
# Run inside SETS: the weights record the paths of the sets, which must not contain folders of this machine.
cd "$2"
grep -E '^file,|,single,' "$photos/LEDGER.csv" > single.csv
cut_set() { # LEDGER SPLIT SET EXTENT [OPTION…]
  [ -e "$3.patches" ] || doap data from-images "$photos" --ledger "$1" --split "$2" \
    --out "$3.patches" --extent "$4" --workers 2 "${@:5}"
}
cut_set "$photos/LEDGER.csv" train wide 1.5 --no-tracks --without-tracks single --views 4
cut_set "$photos/LEDGER.csv" train wider 1.75 --no-tracks --without-tracks single --views 5 --seed 1
# `doap train` validates on patches of the training width. All runs of the shipped weights used 12 σ instead.
cut_set "$photos/LEDGER.csv" val wide-val 1.5
cut_set "$photos/LEDGER.csv" val wider-val 1.75

train() { # RECIPE SET VALIDATION RUN [LAUNCHER…]
  OMP_NUM_THREADS=1 "${@:5}" -m doap train "$recipes/$1.toml" --data "$2.patches" --validation "$3.patches" \
    --out "$runs/$4"
  cp "$runs/$4/last.safetensors" "$4.safetensors"
}
two=(torchrun --nproc-per-node=2)
train 1-narrow train val narrow "${two[@]}"
train 2-wide wide wide-val wide "${two[@]}"
train 3-wider wider wider-val wider "${two[@]}"

# Tracks and synthetic views with patches of 18 σ, for descriptors that are used at 12 σ (`network.extent`).
cut_set single.csv train views 1.5 --no-tracks --without-tracks single --views 4 --keypoints 300 --seed 2
[ -e tracks-views.patches ] || doap data merge "$tracks/train.patches" views.patches --out tracks-views.patches
ln -sfn "$tracks/val.patches" tracks-val.patches
train 4-tracks tracks-views tracks-val tracks python
train 5-bits tracks-views tracks-val bits python
train 6-fast tracks-views tracks-val fast python
