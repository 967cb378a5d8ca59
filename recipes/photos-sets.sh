#!/usr/bin/env bash
# The project's own sets, from the photographs with a licence ledger:
#
#     recipes/photos-sets.sh PHOTOS SETS
#
# PHOTOS holds LEDGER.csv (file, place, split, licence, author, …) and the photos it names; SETS receives
# train.patches, val.patches, test.patches and finetune.patches. Splits are by place. Killed? The same command resumes.
# Two cores, no GPU; how long it takes and what each place gives is in docs/data.md.
set -euo pipefail
photos=$1 sets=$2
mkdir -p "$sets"
for split in val test finetune train; do
  out="$sets/$split.patches"
  [ -e "$out" ] && continue
  extra=()
  # The 180 single scenes show 180 different places.
  [ "$split" = train ] && extra=(--without-tracks single)
  doap data from-images "$photos" --ledger "$photos/LEDGER.csv" --split "$split" --out "$out" --workers 2 "${extra[@]}"
done
