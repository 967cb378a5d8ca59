#!/usr/bin/env bash
# All peers, and your descriptors beside them, on everything at hand, and one page to look at:
#
#     recipes/evaluate.sh DATA TEST_SET RESULTS [DESCRIPTOR…]
#
# DATA holds oxford_affine, hpatches_sequences and weights_tfeat; TEST_SET is the test set of recipes/photos-sets.sh.
# All descriptors see COLMAP's keypoints, the only ones that DSP-SIFT can describe. Killed? What was described is kept.
set -euo pipefail
data=$1 test_set=$2 results=$3
descriptors=(peers "$data/weights_tfeat/tfeat-liberty.params" "${@:4}")
doap eval "${descriptors[@]}" oxford "$data/oxford_affine" --detector colmap --out "$results"
doap eval "${descriptors[@]}" oxford "$data/hpatches_sequences" --detector colmap --out "$results"
doap eval "${descriptors[@]}" patches "$test_set" --out "$results"
doap report "$results" --out "$results/report"
