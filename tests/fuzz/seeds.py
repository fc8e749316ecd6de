"""The cases that ended in a crash, a traceback or a false certificate when they were first tried."""

FAILED: list[tuple[str, str, int]] = [
    ("multiclass", "data", 3),
    ("chain", "data", 2),
    ("latent_multiclass", "data", 0),
    ("latent", "checkpoint", 0),
    ("chain", "data", 45),
    ("latent", "checkpoint", 11),
    ("latent", "checkpoint", 26),
    ("latent_multiclass", "checkpoint", 4),
    ("latent_multiclass", "checkpoint", 10),
    ("latent_chain", "checkpoint", 41),
    ("free_bias", "model", 22),
    ("cfg", "checkpoint", 55),
]
