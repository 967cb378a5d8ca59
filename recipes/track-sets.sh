#!/usr/bin/env bash
# Cut patch sets from the committed track files:
#
#     recipes/track-sets.sh DATA TRACKS [EXTENT [VALIDATION_EXTENT]]
#
# DATA contains photos (with LEDGER.csv). The command writes train.patches (all scenes of the split `train`) and
# val.patches (2 scenes of `val`) to TRACKS, cut at EXTENT, by default 1.5. VALIDATION_EXTENT is the extent of
# val.patches if it differs, for recipes with `network.extent`. Resumable: rerun the same command to continue.
set -euo pipefail
data=$1 out=$2 extent=${3:-1.5} validation_extent=${4:-${3:-1.5}} tracks=$(dirname "$0")/tracks
val=("$tracks"/{taj_mahal,fountain}.parquet)
mapfile -t train < <(printf '%s\n' "$tracks"/*.parquet | grep -vxF "$(printf '%s\n' "${val[@]}")")
cut_set() { # SET EXTENT FILE…
  [ -e "$out/$1" ] || doap data from-tracks "${@:3}" "$data/photos" --ledger "$data/photos/LEDGER.csv" --extent "$2" \
    --out "$out/$1"
}
cut_set train.patches "$extent" "${train[@]}"
cut_set val.patches "$validation_extent" "${val[@]}"
