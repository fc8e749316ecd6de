"""What runs in one place: growing, members, gram and cache, space, newton, group, stride, ascent and face (kernels),
solver, ledger, condense, grouping, granularity and schedule (pure decisions), record, train, stream, path, imputing and
latent (the loops), state and latent_state (what a checkpoint keeps of them)."""
