"""The schema of model.json, certificate.json and run.json; arrays are checked where they are read."""

from distdual.schema import anything, choice, each, flag, maybe, number, table, table_of, text, whole

FOLDERS = "dual|map|support|prior|problem|preprocessing"
PLAIN_NAME = text(rf"(({FOLDERS})/)?[a-z_]+\.(npy|txt|json)", "the plain name of a file of the model")
MEMBERS = r"dual/members-[0-9a-z]+"
DIGEST = text("[0-9a-f]{64}", "a SHA-256")

PROBLEM = table(
    {"kind": text(), "n_features": whole(), "classes": each(text(), distinct=True)}, others=True
)  # its own keys are checked by the problem

FUNCTION = {
    "kind": choice("rbf", "polynomial", "laplacian", "sigmoid"),
    "gamma": number(positive=True),
    "degree": whole(1, 100),
    "coef0": number(),
}
EXPANDED = table({**FUNCTION, "support": whole(), "sha256": DIGEST})
FEATURE_MAP = table(
    {
        **FUNCTION,
        "map": choice("nystroem", "fourier"),
        "width": whole(1),
        "sha256": DIGEST,
    }
)

DATA_RULE = table(
    {"url": text(".+"), "fingerprint": text(), "n_examples": whole(1)},
    {"n_shards": whole(1), "numbering": maybe(text())},
    others=True,
)

PREPROCESSING = table(
    {
        "fingerprint": text(),
        "scale": choice("none", "unit-variance", "unit-rows"),
        "recipe": table({}, others=True),
        "texts": table_of(whole(0, 2**32 - 1), text("vocabulary|scale|columns|map")),
    }
)

MODEL = table(
    {
        "format": whole(1),
        "problem": PROBLEM,
        "C": number(positive=True),
        "prior": each(choice("mean", "precision", "nonnegative"), distinct=True),
        "data": DATA_RULE,
        "config": table({}, others=True),
    },
    {
        "dual": choice("examples", "groups", "summary"),
        "members": text(MEMBERS, "a folder in dual/"),
        "distdual": text(),
        "feature_names": each(text()),
        "preprocessing": PREPROCESSING,
    },
    others=True,
)

TRACE_RULE = table({"objective": maybe(number()), "trace": each(table({}, others=True))}, others=True)

KERNEL = table({"certifies": text()}, {"sample": whole(), "relative_error": number(), "largest_error": number()})

CERTIFICATE = table(
    {
        "lower": maybe(number()),
        "upper": maybe(number()),
        "gap": maybe(number()),
        "target": number(),
        "certified": flag,
    },
    {
        "estimate": maybe(number()),
        "reason": text(),
        "support": whole(),
        "seconds": number(),
        "latent": TRACE_RULE,
        "kernel": KERNEL,
        "model": anything,
        "sha256": table_of(DIGEST, PLAIN_NAME),
    },
    others=True,
)

RUN_RULE = table({"members": maybe(text(MEMBERS, "a folder in dual/"))}, others=True)
