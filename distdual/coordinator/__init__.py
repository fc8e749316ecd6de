"""What runs in one place: growing, cache, ascent (kernels), solver, ledger, condense, grouping,
granularity and schedule (pure decisions), train (the loop), state (what a checkpoint keeps of it)."""
