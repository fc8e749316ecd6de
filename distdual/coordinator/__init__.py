"""What runs in one place: cache, ascent (kernels), solver, schedule (pure decisions), train (the loop)."""
