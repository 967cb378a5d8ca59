#!/usr/bin/env bash
# Train and test the six pairs of PhotoTour sets of the paper's table 1:
#
#     recipes/phototour.sh PHOTOTOUR SETS RUNS RESULTS [RECIPE]
#
# PHOTOTOUR contains liberty, notredame and yosemite. RECIPE is ubc (default), ubc-st, ubc-binary or ubc-binary-st. Each
# set trains one descriptor, which is tested on the other two. The weights after the last step are tested, so the set
# that is validated on, one of the two test sets, selects nothing. Resumable: rerun the same command to continue.
set -euo pipefail
phototour=$1 sets=$2 runs=$3 results=$4 recipe=${5:-ubc}
recipes=$(cd "$(dirname "$0")" && pwd)
size=32
[[ $recipe == *-st ]] && size=42
names=(liberty notredame yosemite)
mkdir -p "$sets" "$runs"
for name in "${names[@]}"; do
  [ -e "$sets/$name$size.patches" ] ||
    doap data from-public "$phototour/$name" --patch-size "$size" --out "$sets/$name$size.patches"
done
for index in 0 1 2; do
  train=${names[$index]} other=${names[$(((index + 1) % 3))]}
  doap train "$recipes/$recipe.toml" --data "$sets/$train$size.patches" --validation "$sets/$other$size.patches" \
    --out "$runs/$recipe-$train"
  cp "$runs/$recipe-$train/last.safetensors" "$runs/$recipe-$train.safetensors"
  for test in "${names[@]}"; do
    [ "$test" = "$train" ] || doap eval "$runs/$recipe-$train.safetensors" phototour "$phototour/$test" --out "$results"
  done
done
doap report "$results" --out "$results/report"
