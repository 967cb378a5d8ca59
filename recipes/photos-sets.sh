#!/usr/bin/env bash
# Build the project's own patch sets from the photos with a licence ledger:
#
#     recipes/photos-sets.sh PHOTOS SETS
#
# PHOTOS contains LEDGER.csv (file, scene, split, licence, author, …) and the photos. The command writes train.patches,
# val.patches, test.patches and finetune.patches to SETS. Splits have different scenes. Resumable: rerun the same command
# to continue. It took about two hours on two cores.
set -euo pipefail
photos=$1 sets=$2
mkdir -p "$sets"
for split in val test finetune train; do
  out="$sets/$split.patches"
  [ -e "$out" ] && continue
  extra=()
  # The folder `single` has 180 photos of 180 different scenes.
  [ "$split" = train ] && extra=(--without-tracks single)
  doap data from-images "$photos" --ledger "$photos/LEDGER.csv" --split "$split" --out "$out" --workers 2 "${extra[@]}"
done
