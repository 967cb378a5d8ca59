#!/usr/bin/env bash
# Evaluate all baselines, learned pipelines and your own descriptors on all benchmarks, and write one report page:
#
#     recipes/evaluate.sh DATA SCENES RESULTS [DESCRIPTOR…]
#
# DATA contains photos, photos_more and imc2025 (camera poses), wide_baseline, strecha, oxford_affine,
# hpatches_sequences and baselines (learned ones). SCENES receives the scenes with known poses.
# All descriptors use COLMAP keypoints, because DSP-SIFT cannot describe others, but SIFT keypoints on the large images
# of WxBS, where DSP-SIFT is left out; pipelines use their own. Two processes with one thread each run side by
# side, on different benchmarks: about five hours on two cores. Rerun the same command to continue after an
# interruption.
set -euo pipefail
data=$1 scenes=$2 results=$3
own=("${@:4}")
learned=("$data"/baselines/{HardTFeat.pth,mkd-concat-64.pth,SIFT+Boost-F.pth,SIFT+Boost-B.pth,hashsift-256.npy})
validation=(fountain taj_mahal)
test=(sacre_coeur grand_place_brussels church)
export OMP_NUM_THREADS=1

for scene in "${validation[@]}" "${test[@]}"; do chosen+=(--scene "$scene"); done
doap data from-poses "$data/imc2025/poses.csv" "$data/photos" "$data/photos_more/poses.csv" "$data/photos_more" \
  "${chosen[@]}" --out "$scenes"

# Descriptors on the same keypoints, and pipelines with their own keypoints and matchers.
descriptors=(rootsift rootsift-wide teblid "${own[@]}" "${learned[@]}")
same=(--detector colmap --resume --out "$results")
select=(--set "validation=$(IFS=,; echo "${validation[*]}")" --set "test=$(IFS=,; echo "${test[*]}")")
doap eval "${descriptors[@]}" dsp-sift pipelines pose "$scenes" "${same[@]}" "${select[@]}" & pose=$!
doap eval "${descriptors[@]}" dsp-sift sfm "$scenes" "${same[@]}" "${select[@]}"
doap eval "${descriptors[@]}" dsp-sift sfm "$data/strecha" "${same[@]}"
doap eval "${descriptors[@]}" pipelines wxbs "$data/wide_baseline/wxbs" --resume --out "$results"
for sequences in oxford_affine hpatches_sequences; do
  doap eval sift vgg daisy teblid-512 beblid beblid-512 boostdesc latch orb akaze colmap-sift dsp-sift \
    "${descriptors[@]}" oxford "$data/$sequences" "${same[@]}"
done
wait "$pose"

# Timings, one after the other.
doap eval "${descriptors[@]}" dsp-sift pipelines speed "$scenes/taj_mahal/images" "${same[@]}" --set photos=3 \
  --set repeats=2
doap report "$results" --out "$results/report"
