#!/usr/bin/env bash
# Evaluate all baselines and your own descriptors on all benchmarks, and write one report page:
#
#     recipes/evaluate.sh DATA TEST_SET RESULTS [DESCRIPTOR…]
#
# DATA contains oxford_affine, hpatches_sequences and weights_tfeat; TEST_SET is the test set of recipes/photos-sets.sh.
# All descriptors use COLMAP keypoints, because DSP-SIFT cannot describe others. Resumable: rerun the same command to
# continue; finished descriptors are cached.
set -euo pipefail
data=$1 test_set=$2 results=$3
descriptors=(baselines "$data/weights_tfeat/tfeat-liberty.params" "${@:4}")
doap eval "${descriptors[@]}" oxford "$data/oxford_affine" --detector colmap --out "$results"
doap eval "${descriptors[@]}" oxford "$data/hpatches_sequences" --detector colmap --out "$results"
doap eval "${descriptors[@]}" patches "$test_set" --out "$results"
doap report "$results" --out "$results/report"
