"""The coordinator: one process that owns the run, its cache, α and w.

schedule         what to do next: pure decisions
row_arrays       rows as arrays, and back
report_checks    checks of a worker's report
pass_cost        the declared cost of a pass, in ascent updates
auto_slack       the initial slack partition
coalesce         several constraints as one, without lowering D(α)
provenance       the recorded rows behind each cached row
slack_partition  the current slack groups, and insertion into a cache of limited size
pass_underway    a pass that has begun: what comes next in it
flow             the decisions of an asynchronous run: events in, instructions out
refutation       proof that an oracle is not exact
run_state        the state of a run between two rounds
outcome          the result of a run
scanner          the scans of a run: publish, send, check, count
ascender         the ascent of a run: insert, ascend, bound, prune
recorder         the lines of the run log
trainer          the synchronous loop: scan, insert, ascend, certify
async_trainer    the same loop without rounds
evaluation       scores on another data set while training
whole_trainer    the loop for losses over the whole data set
c_path           one run along several values of C
impute           latent values between two convex problems
latent_loop      imputing and solving in turn
run_identity     what must be the same for a run to resume
checkpoint_schema  the form of what a checkpoint holds
snapshot         the state of a run as arrays and JSON values
latent_snapshot  the same for a latent run
checkpoint       snapshots in a folder, written atomically
finished         the model of a finished run, which need not be trained again
warm_start       a run that starts from the α of a model
run_inputs       what a run starts from: locations, problem, prior
map_maker        the feature map of [kernel], and rows drawn for it
solve            a convex or a latent run: new, warm-started or resumed
expansion_trainer  training with an exact kernel: search, ascend, certify
expansion_checkpoint  checkpoints of such runs
expansion_run      a run with an exact kernel, from a config to its model
run_output       the model folder while a run writes to it
result_model     the model of a finished run
run              from a config to a certified model
dry_run          what such a run would read, hold and cost
follow           training anew whenever shards are appended
sweep_c          cross-validation over a path of C
calibrate        probabilities from cross-validated decision values
"""
