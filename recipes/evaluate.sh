#!/usr/bin/env bash
# Evaluate the shipped descriptors, baselines and learned pipelines on all benchmarks, and write one report page:
#
#     recipes/evaluate.sh DATA SCENES RESULTS [DESCRIPTOR…]
#
# DATA contains photos, photos_more, wide_baseline, strecha, oxford_affine, hpatches_sequences and baselines (learned
# ones). SCENES receives the frozen scenes of recipes/scenes with their photos. All descriptors use the keypoints that
# COLMAP detects by default, up to 8,192 per photo, but DSP-SIFT and pipelines their own. Two processes with one
# thread each run side by side: docs/evaluation.md has the minutes. Rerun the same command to continue after an
# interruption.
set -euo pipefail
data=$1 scenes=$2 results=$3
own=(doap-128 doap-256bit doap-fast "${@:4}")
recipes=$(dirname "$0")
export OMP_NUM_THREADS=1

"$recipes/scenes.sh" "$data" evaluation "$scenes"

# The ratio test of each descriptor is selected on the validation scenes.
run() { doap eval "$@" --resume; }
select=(--set validation=fountain,taj_mahal --set test=sacre_coeur,grand_place_brussels,church)
pose=("$scenes" "${select[@]}" --out "$results" --set fewer_keypoints=2048 --set)
hard_tfeat="$data/baselines/HardTFeat.pth"
at_2048=("$data"/baselines/{mkd-concat-64.pth,SIFT+Boost-F.pth,SIFT+Boost-B.pth,hashsift-256.npy} teblid dsp-sift)
(
  run doap-128 doap-fast rootsift pose "${pose[@]}" turned=45,90,135,180
  run doap-256bit "${@:4}" "$hard_tfeat" doap-128+adalam pose "${pose[@]}" turned=90
  for sequences in oxford_affine hpatches_sequences; do
    run "${own[@]}" rootsift "$hard_tfeat" oxford "$data/$sequences" --detector colmap --out "$results"
  done
) &
run aliked-lightglue pose "${pose[@]}" turned=45,90,135,180
run "${own[@]}" rootsift "$hard_tfeat" sfm "$scenes" "${select[@]}" --out "$results"
run xfeat-lighterglue pose "${pose[@]}" turned=90
run "${own[@]}" rootsift "$hard_tfeat" sfm "$data/strecha" --out "$results"
run "${own[@]}" rootsift "$hard_tfeat" aliked-lightglue xfeat-lighterglue wxbs "$data/wide_baseline/wxbs" --out "$results"
wait

# Older baselines, at 2,048 keypoints only.
run "${at_2048[@]}" pose "$scenes" "${select[@]}" --set max_keypoints=2048 --out "$results/at-2048" &
for sequences in oxford_affine hpatches_sequences; do
  run "${at_2048[@]}" oxford "$data/$sequences" --detector colmap --out "$results"
done
wait

# Timings, one after the other.
run "${own[@]}" rootsift "$hard_tfeat" "${at_2048[@]}" aliked-lightglue xfeat-lighterglue speed "$scenes/taj_mahal/images" \
  --detector colmap --set photos=3 --set repeats=2 --out "$results"
doap report "$results" --out "$results/report"
