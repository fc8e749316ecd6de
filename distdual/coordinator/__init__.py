"""What runs in one place: growing, cache, space, group, stride and ascent (kernels), solver, ledger, condense,
grouping, granularity and schedule (pure decisions), train, stream, path and latent (the loops), state (what a
checkpoint keeps of them)."""
