#!/usr/bin/env bash
# The descriptors that ship, from the photographs with a licence ledger:
#
#     recipes/weights.sh PHOTOS SETS RUNS
#
# SETS holds the sets of recipes/photos-sets.sh; the set of wider patches is added to them. Each run is two processes
# on two cores; the cards beside the weights say what they gave. Killed? The same command resumes.
set -euo pipefail
photos=$(realpath "$1") runs=$(realpath -m "$3") recipes=$(cd "$(dirname "$0")" && pwd)/weights
# From inside SETS: names of sets go into the weights, and where they were is nobody's business.
cd "$2"
[ -e wide.patches ] || doap data from-images "$photos" --ledger "$photos/LEDGER.csv" --split train --out wide.patches \
  --no-tracks --without-tracks single --extent 1.5 --views 4 --workers 2

train() { # RECIPE SET RUN
  OMP_NUM_THREADS=1 torchrun --nproc-per-node=2 -m doap train "$recipes/$1.toml" --data "$2.patches" \
    --validation val.patches --out "$runs/$3"
  cp "$runs/$3/last.safetensors" "$3.safetensors"
}
train 1-narrow train narrow
train 2-wide wide wide
train 3-bits wide bits
