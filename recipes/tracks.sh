#!/usr/bin/env bash
# Build the track files in recipes/tracks from photos, scene by scene:
#
#     recipes/tracks.sh DATA WORK [SCENE…]
#
# DATA contains photos (with LEDGER.csv) and imc2025/poses.csv. Tracks are those of all of COLMAP's keypoints, up to
# 8,192 per photo. RootSIFT and doap-fast match them, because tracks of one descriptor are only what it can match.
# Scenes with known poses are triangulated; the others (aerial photos, mostly) are mapped from doap-fast's matches.
# Finished scenes are skipped: rerun the same command to continue. A first run of all scenes has not been made.
set -euo pipefail
data=$(realpath "$1") work=$2 out=$(cd "$(dirname "$0")" && pwd)/tracks
posed=(brandenburg_gate trevi_fountain piazza_san_marco british_museum buckingham_palace pond st_pauls_cathedral
  st_peters_square imc2023_heritage-dioscuri taj_mahal fountain lizard kyiv_puppet_theater peach
  fbk_vineyard-vineyard_split_1 fbk_vineyard-vineyard_split_2 stairs-stairs_split_1 stairs-stairs_split_2 chairs bike
  another_et et)
mapped=(boruszyn lewis tarak_farms skull buddha)
export OMP_NUM_THREADS=1

build() { # SCENE
  local scene=$1 folder="$work/$1" photos=$1
  case $scene in *-*) photos=${scene#*-} photos=${photos%_split_*} ;; esac
  [ -e "$out/$scene.parquet" ] && return
  if [[ " ${posed[*]} " = *" $scene "* ]]; then
    doap data from-poses "$data/imc2025/poses.csv" "$data/photos" --scene "$scene" --descriptor rootsift \
      --descriptor doap-fast --max-keypoints 8192 --out "$work"
  else
    doap colmap "$data/photos/$scene" --descriptor doap-fast --out "$folder/database.db"
    python3 - "$folder" "$data/photos/$scene" <<'END'
import sys
from pathlib import Path
from doap.evaluation.mapping import map_database
folder, photos = map(Path, sys.argv[1:])
models = map_database(folder / "database.db", photos, folder / "models", 0)
(folder / "sparse").mkdir()
models[0].write(folder / "sparse")
END
    ln -sfn "$data/photos/$scene" "$folder/images"
  fi
  doap data tracks "$folder/sparse" "$folder/images" --database "$folder/database.db" --scene "$scene" \
    --folder "$photos" --out "$out/$scene.parquet"
}

scenes=("${@:3}")
[ ${#scenes[@]} -gt 0 ] || scenes=("${posed[@]}" "${mapped[@]}")
# Two processes, each with every second scene.
for number in 0 1; do
  (for ((index = number; index < ${#scenes[@]}; index += 2)); do build "${scenes[index]}"; done) &
done
wait
