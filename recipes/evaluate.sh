#!/usr/bin/env bash
# Evaluate all baselines, learned pipelines and your own descriptors on all benchmarks, and write one report page:
#
#     recipes/evaluate.sh DATA SCENES RESULTS [DESCRIPTOR…]
#
# DATA contains photos, photos_more and imc2025 (camera poses), wide_baseline, strecha, oxford_affine,
# hpatches_sequences, and baselines and weights_tfeat (learned baselines). SCENES receives the scenes with known poses.
# All descriptors use COLMAP keypoints, because DSP-SIFT cannot describe others, but SIFT keypoints on the large images
# of WxBS and EVD, where DSP-SIFT is left out; pipelines use their own. Two processes with one thread each run side by side. Rerun the same command
# to continue after an interruption.
# results/evaluation/README.md has the time it takes.
set -euo pipefail
data=$1 scenes=$2 results=$3
own=("${@:4}")
learned=("$data"/baselines/{HardTFeat.pth,mkd-concat-64.pth,SIFT+Boost-F.pth,SIFT+Boost-B.pth,hashsift-256.npy})
validation=(fountain taj_mahal)
test=(sacre_coeur grand_place_brussels church)
export OMP_NUM_THREADS=1

# Run `doap eval` for two groups of descriptors at the same time: side_by_side FIRST… -- SECOND… -- BENCHMARK ROOT OPTION…
side_by_side() {
  local first=() second=()
  while [ "$1" != -- ]; do first+=("$1"); shift; done; shift
  while [ "$1" != -- ]; do second+=("$1"); shift; done; shift
  doap eval "${first[@]}" "$@" --resume --out "$results" & local one=$!
  doap eval "${second[@]}" "$@" --resume --out "$results" & local two=$!
  wait "$one" && wait "$two"
}

for scene in "${validation[@]}" "${test[@]}"; do chosen+=(--scene "$scene"); done
doap data from-poses "$data/imc2025/poses.csv" "$data/photos" "$data/photos_more/poses.csv" "$data/photos_more" \
  "${chosen[@]}" --out "$scenes"

# Descriptors on the same keypoints, and pipelines with their own keypoints and matchers.
first=(rootsift rootsift-wide teblid "${own[@]}")
second=(dsp-sift "${learned[@]}")
pipelines=(aliked-lightglue xfeat -- disk-lightglue xfeat-lighterglue)
same=(--detector colmap)
select=(--set "validation=$(IFS=,; echo "${validation[*]}")" --set "test=$(IFS=,; echo "${test[*]}")")
side_by_side "${first[@]}" -- "${second[@]}" -- pose "$scenes" "${same[@]}" "${select[@]}"
side_by_side "${pipelines[@]}" -- pose "$scenes" "${same[@]}" "${select[@]}"
side_by_side "${first[@]}" -- "${second[@]}" -- sfm "$scenes" "${same[@]}" "${select[@]}"
side_by_side "${first[@]}" -- "${second[@]}" -- sfm "$data/strecha" "${same[@]}"
side_by_side "${first[@]}" -- "${learned[@]}" -- wxbs "$data/wide_baseline/wxbs"
side_by_side "${first[@]}" -- "${learned[@]}" -- evd "$data/wide_baseline/evd"
side_by_side "${pipelines[@]}" -- wxbs "$data/wide_baseline/wxbs"
side_by_side "${pipelines[@]}" -- evd "$data/wide_baseline/evd"
for sequences in oxford_affine hpatches_sequences; do
  side_by_side sift vgg daisy teblid-512 beblid beblid-512 boostdesc "${first[@]}" -- latch orb akaze colmap-sift \
    "$data/weights_tfeat/tfeat-liberty.params" "${second[@]}" -- oxford "$data/$sequences" "${same[@]}"
done

# Timings, one after the other.
doap eval "${first[@]}" "${second[@]}" pipelines speed "$scenes/taj_mahal/images" "${same[@]}" --set photos=3 \
  --set repeats=2 --out "$results"
doap report "$results" --out "$results/report"
