"""The solver: maximises the dual over the constraints that scans found.

regularizer   the regulariser R(w), its conjugate, and priors
proven        R(w), R*(v) and D(α) with bounds on their rounding
metric        inner products and updates of w under R
growable      arrays that grow in place
cache_index   slots of the cache, sorted by slack group
gram          inner products of constraints within a group
cache         the constraint cache: rows, margins, α and groups
active_set    the subproblem of one large group
group_step    one ascent step on a group
extrapolate   steps along the direction of several sweeps
sweep         sweeps of coordinate ascent over groups
climb         sweeps in turn over the groups that may still move
tracking      new constraints of a stream, each followed by visits to random ones
simplex_qp    the exact maximiser for a single slack group
gap           the relative duality gap, and when it certifies
ascent_plan   limits of one ascent
balance       balanced α where the bias is free
solver        the warm-started maximiser of D(α)
"""
