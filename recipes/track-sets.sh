#!/usr/bin/env bash
# Build patch sets of real tracks from photos with known camera poses:
#
#     recipes/track-sets.sh DATA TRACKS [EXTENT [VALIDATION_EXTENT]]
#
# DATA contains photos (with LEDGER.csv) and imc2025/poses.csv. The command writes train.patches (20 scenes of the split
# `train`) and val.patches (2 scenes of `val`) to TRACKS, cut at EXTENT, by default 1.5. VALIDATION_EXTENT is the
# extent of val.patches if it differs, for recipes with `network.extent`.
#
# Tracks from RootSIFT alone are only what SIFT can match. A network trained for a minute on three such scenes therefore
# matches all training scenes a second time, and its matches are added to RootSIFT's. The validation tracks combine
# RootSIFT's matches with those of doap-128. Validation and the three first scenes use 4,096 keypoints per image, the other
# scenes 2,048. Resumable: rerun the same command to continue. About an hour on two cores.
set -euo pipefail
data=$1 tracks=$2 extent=${3:-1.5} validation_extent=${4:-${3:-1.5}}
first=(brandenburg_gate piazza_san_marco lizard)
train=("${first[@]}" trevi_fountain british_museum kyiv_puppet_theater pond buckingham_palace st_pauls_cathedral
  st_peters_square bike chairs et another_et peach stairs-stairs_split_1 stairs-stairs_split_2
  fbk_vineyard-vineyard_split_1 fbk_vineyard-vineyard_split_2 imc2023_heritage-dioscuri)
val=(taj_mahal fountain)
mkdir -p "$tracks"

# Triangulate the matches of some descriptors in a scene and cut the patches: build SCENE OUT KEYPOINTS DESCRIPTOR…
build() {
  local scene=$1 out=$2 keypoints=$3 folder
  folder="$out/scenes/$scene"
  [ -e "$out/$scene.patches" ] && return
  local descriptors=()
  for name in "${@:4}"; do descriptors+=(--descriptor "$name"); done
  doap data from-poses "$data/imc2025/poses.csv" "$data/photos" --scene "$scene" "${descriptors[@]}" \
    --max-keypoints "$keypoints" --out "$out/scenes"
  doap data from-colmap "$folder/sparse" "$folder/images" --database "$folder/database.db" --extent "$extent" --scene "$scene" \
    --out "$out/$scene.patches"
}
sets() { for scene in "${@:2}"; do echo "$1/$scene.patches"; done; }

# Each shell process takes every second scene.
both() {
  local out=$1 keypoints=$2 descriptors=$3 number; shift 3
  for number in 0 1; do
    (index=0; for scene in "$@"; do
      # shellcheck disable=SC2086
      [ $((index++ % 2)) = $number ] && build "$scene" "$out" "$keypoints" $descriptors
    done; true) &
  done
  wait
}

export OMP_NUM_THREADS=1
both "$tracks/first" 4096 rootsift "${first[@]}"
mapfile -t merged < <(sets "$tracks/first" "${first[@]}")
[ -e "$tracks/first/all.patches" ] || doap data merge "${merged[@]}" --out "$tracks/first/all.patches"
matcher="$tracks/matcher/last.safetensors"
[ -e "$matcher" ] || \
  doap train "$(dirname "$0")/fast-matcher.toml" --data "$tracks/first/all.patches" \
  --out "$tracks/matcher"
extent=$validation_extent both "$tracks/val" 4096 "rootsift doap-128" "${val[@]}"
both "$tracks/train" 4096 "rootsift $matcher" "${first[@]}"
both "$tracks/train" 2048 "rootsift $matcher" "${train[@]}"
for split in val train; do
  declare -n scenes=$split
  mapfile -t merged < <(sets "$tracks/$split" "${scenes[@]}")
  [ -e "$tracks/$split.patches" ] || doap data merge "${merged[@]}" --out "$tracks/$split.patches"
done
