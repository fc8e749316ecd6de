"""Scans: the most violated constraint of every example of a shard, at given weights.

shard_reader        reading shards, the next ones while others are computed on
cv_folds            the examples that a cross-validation run leaves out
slack_groups        examples that share a slack, and the constraint of such a group
row_draw            rows of a shard for a feature map
expansion_scan      one shard for an exact kernel: offenders, and its share of both bounds
group_members_file  files that record which examples a group's row combines
recent_offenders    violated constraints among the latest offenders, without inference
loss_error          the rounding of a shard's loss, and what no exact oracle returns
selection           the example nearest to the decision boundary, of every few
scan                the scan of one shard, and its report
whole_data          one shard for a loss over all examples: scores, and its part of rows
whole_positives     the positives of shards, which processes keep when they forget the shards
whole_pairs         one shard for pairs of a positive and a negative: scores, counts, and its part of rows
"""
