#!/usr/bin/env bash
# PPT, Table 5: Tasks of more than five classes, 8 training and 8 dev examples per class.
#
# Protocol: As Table 4, with 8 training and 8 dev examples of each label (Yahoo! Answers: 5
# steps per epoch, 50 epochs). Yahoo!'s test is the published 60,000. Rates are searched on dev
# in the printed intervals. PT (MC) has the form of Unified PPT, without pre-training. TNews has
# 15 classes in CLUE; the paper prints 14. Its code is not published, so patterns are the
# paper's and label words ours.
#
# 8 cells, 5 seeds each. GPU hours: about 60 on A100s, with FT on four, for Yahoo! Answers only,
# whose test is 60,000 (as Table 4; not measured).
#
# All arguments go to every run: data_dir=DIR, hardware=gpu, cell=NAME, seeds=1. With
# +scale=pocket, all cells run on the pocket world, in minutes on a laptop.

set -euo pipefail

ptrun experiment=ppt/table5 check=true "$@"
ptrun experiment=ppt/table5 "$@"
report=(--paper ppt --table table5)
for given in "$@"; do
  if [[ $given == outputs=* ]]; then report+=(--outputs "${given#outputs=}"); fi
done
ptrun report "${report[@]}"
