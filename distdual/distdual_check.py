"""An independent check of a model's certificate, in plain NumPy: `python distdual_check.py MODEL [DATA] [--gap GAP]`.

This file shares no code with the rest of distdual and needs only NumPy, so that it can be read and trusted by itself.
It reads the model folder and the Zarr v3 chunks of the data set, and recomputes in float64

    upper = P(w) = R(w) + C Σ_i cost_i max(0, max_j l_ij − ⟨w, x_ij⟩)       all constraints of all examples
    lower = D(α) = Σ α l − R*(Σ α x)        the support constraints, rebuilt from the data by example and key

with R(w) = 1/2 Σ_k λ_k (w_k − m_k)². It covers binary, multiclass, regression and chain problems in local folders, with
diagonal priors and w_k ≥ 0, where each example has a slack of its own. Anything else is an error, never skipped.
Exit code: 0 checked, 1 refused, 2 not covered or not readable.
"""

import argparse
import hashlib
import itertools
import json
import math
import sys
from pathlib import Path

import numpy as np

SAME = 1e-9  # largest relative difference between a recomputed and a recorded number
POLYNOMIAL = 0x82F63B78  # of crc32c, bits reversed


class Refused(Exception):
    """The folder proves less than it claims."""


class NotCovered(Exception):
    """This file cannot tell."""


def require(holds, sentence):
    if not holds:
        raise Refused(sentence)


# --- chunks: crc32c, Blosc and LZ4

TABLE = list(range(256))
for _ in range(8):
    TABLE = [entry >> 1 ^ POLYNOMIAL * (entry & 1) for entry in TABLE]


def crc32c(data):
    state = 0xFFFFFFFF
    for byte in data:
        state = TABLE[(state ^ byte) & 0xFF] ^ state >> 8
    return state ^ 0xFFFFFFFF


def lz4(source, size):
    """One LZ4 block."""
    out, at = bytearray(), 0

    def length(start, at):
        total = start
        while start == 15:
            byte, at = source[at], at + 1
            total += byte
            if byte != 255:
                break
        return total, at

    while at < len(source):
        token, at = source[at], at + 1
        literal, at = length(token >> 4, at)
        out += source[at : at + literal]
        at += literal
        if at >= len(source):
            break
        offset, at = source[at] | source[at + 1] << 8, at + 2
        match, at = length(token & 15, at)
        require(0 < offset <= len(out), "an LZ4 block refers to what is before its beginning")
        match += 4
        out += (out[-offset:] * (match // offset + 1))[:match] if offset < match else out[-offset:][:match]
        require(len(out) <= size, "an LZ4 block is longer than it says")
    require(len(out) == size, "an LZ4 block is shorter than it says")
    return bytes(out)


def blosc(source):
    """A Blosc 1 frame of LZ4 blocks, with or without byte shuffle."""
    flags, item = source[2], source[3]
    size, block, _ = np.frombuffer(source[4:16], dtype="<u4").tolist()
    if flags & 2:
        return source[16 : 16 + size]
    if flags >> 5 != 1 or flags & 4:
        raise NotCovered("a chunk is compressed by something else than LZ4 with byte shuffle")
    starts = np.frombuffer(source[16:], dtype="<u4", count=-(-size // block)).tolist()
    parts = []
    for number, at in enumerate(starts):
        length = min(block, size - number * block)
        whole = length == block and not flags & 16 and item <= 16 and block // item >= 128
        n_splits = item if whole else 1
        plain = b""
        for _ in range(n_splits):
            packed = int(np.frombuffer(source[at : at + 4], dtype="<i4")[0])
            body = source[at + 4 : at + 4 + packed]
            at += 4 + packed  # noqa: PLW2901
            plain += body if packed == length // n_splits else lz4(body, length // n_splits)
        if flags & 1 and item > 1:
            n = length // item * item
            plain = np.frombuffer(plain[:n], dtype=np.uint8).reshape(item, -1).T.tobytes() + plain[n:]
        parts.append(plain)
    return b"".join(parts)


# --- the data set


def read_json(path):
    found = json.loads(path.read_bytes())
    require(isinstance(found, dict), f"{path} is not a JSON object")
    return found


def read_chunk(folder, name, number):
    """Chunk `number` along the first axis of an array, and its values as they were stored."""
    about = read_json(folder / name / "zarr.json")
    shape = about["chunk_grid"]["configuration"]["chunk_shape"]
    key = about["chunk_key_encoding"]["configuration"]["separator"].join(["c", str(number), *["0"] * (len(shape) - 1)])
    content = (folder / name / key).read_bytes()
    codecs = [codec["name"] for codec in about["codecs"]]
    if codecs not in (["bytes", "crc32c"], ["bytes", "blosc", "crc32c"]):
        raise NotCovered(f"{folder}/{name}: codecs {codecs}")
    body, stored = content[:-4], int.from_bytes(content[-4:], "little")
    require(crc32c(body) == stored, f"{folder}/{name}: the checksum of chunk {number} differs")
    plain = blosc(body) if "blosc" in codecs else body
    return np.frombuffer(plain, dtype=np.dtype(about["data_type"]).newbyteorder("<")).reshape(shape)


def read_table(folder, name, n):
    shape = read_json(folder / name / "zarr.json")["chunk_grid"]["configuration"]["chunk_shape"]
    return np.concatenate([read_chunk(folder, name, k) for k in range(-(-n // shape[0]))])[:n]


def natural(label):
    """Classes are in this order: numbers by value, words by spelling."""
    try:
        value = float(label)
    except ValueError:
        value = math.inf
    return (value if math.isfinite(value) else math.inf), label


class Data:
    """The first n_shards shards of a data set."""

    def __init__(self, folder, n_shards):
        self.folder, self.layout = folder, read_json(folder / "zarr.json")["attributes"]["distdual"]
        layout = self.layout
        if layout.get("runs") or layout.get("format") not in (1, 2, 3):
            raise NotCovered("the data set has columns of runs or another format")
        there = read_json(folder / "lengths" / "zarr.json")["shape"][0]
        require(there >= n_shards > 0, f"the data set has {there} shards, the model was trained on {n_shards}")
        self.sparse, self.labels = layout["features"] == "csr", layout["labels"]
        self.classes = sorted(self.labels, key=natural)
        self.lengths = read_table(folder, "lengths", n_shards)
        self.checksum = read_table(folder, "checksum", n_shards)
        self.first = np.concatenate([[0], np.cumsum(self.lengths[:, 0])])
        features = [("indptr", "row"), ("indices", "value"), ("values", "value")] if self.sparse else [("x", "row")]
        tokens = [("tokens", "example")] if layout.get("ragged") else []
        columns = [(name, "example") for name in layout["columns"]]
        self.arrays = [*features, ("y", "row"), *tokens, *columns]

    def shard(self, s):
        """The arrays of shard s without padding, after checking their crc32c and all that points into another."""
        axes = {"example": int(self.lengths[s, 0]), "value": int(self.lengths[s, 1])}
        axes["row"] = int(self.lengths[s, 2]) if self.layout.get("ragged") else axes["example"]
        found, content = {}, b""
        for name, axis in self.arrays:
            length = axes[axis] + (name in ("indptr", "tokens"))
            found[name] = read_chunk(self.folder, name, s)[:length]
            require(len(found[name]) == length, f"shard {s}: {name} is shorter than its length")
            content += found[name].tobytes()
        require(crc32c(content) == int(self.checksum[s]), f"shard {s} is not what was prepared: its checksum differs")
        if self.sparse:
            check_runs(found["indptr"], len(found["values"]), 0, f"shard {s}: indptr")
            inside = (found["indices"] >= 0) & (found["indices"] < self.layout["n_features"])
            require(inside.all(), f"shard {s}: a column is outside of the features")
        if "tokens" in found:
            check_runs(found["tokens"], axes["row"], 1, f"shard {s}: tokens")
        if self.labels:
            require(((found["y"] >= 0) & (found["y"] < len(self.labels))).all(), f"shard {s}: a label is out of range")
            found["y"] = np.array([self.classes.index(label) for label in self.labels])[found["y"]]
        return found

    def fingerprint(self):
        """Of the meaning of the data and the checksums of all shards, as the model recorded it."""
        layout = self.layout
        meaning = [layout["kind"], layout["n_features"], self.sparse, layout["labels"], layout["columns"]]
        meaning += [layout.get("runs", {}), layout["texts"]] if layout.get("texts") else []
        digest = hashlib.sha256(json.dumps(meaning).encode())
        digest.update(self.lengths.tobytes())
        digest.update(self.checksum.tobytes())
        return digest.hexdigest()


def check_runs(indptr, end, least, what):
    right = indptr[0] == 0 and indptr[-1] == end and (np.diff(indptr) >= least).all()
    require(right, f"{what} does not divide {end} entries")


# --- problems: every row of features as (columns, values), constants such as the bias appended


class Linear:
    """Binary, regression, multiclass: one block of weights, or one for each class; x_ij = signs ⊗ (features, bias)."""

    def __init__(self, about, data):
        self.about, self.kind, self.classes = about, about["kind"], about["classes"]
        self.n_features, self.free = about["n_features"], about.get("bias") == "free"
        self.bias = float(np.float32(about["bias_unit"] if self.free else about.get("bias", 0.0)))
        self.n_blocks = len(self.classes) if self.kind == "multiclass" else 1
        self.width = self.n_features + (self.bias != 0)
        self.n_weights = self.n_blocks * self.width
        require(self.n_features == data.layout["n_features"], "the model has another number of features")
        require(list(self.classes) == data.classes, "the model has other classes than the data set")

    def begin(self, shard):
        self.data, self.y = shard, shard["y"]
        self.n = len(shard["tokens"]) - 1 if "tokens" in shard else len(self.y)
        self.cost = shard.get("cost", np.ones(self.n)).astype(np.float64)
        if self.about.get("class_cost"):
            self.cost = self.cost * np.array([self.about["class_cost"].get(c, 1.0) for c in self.classes])[self.y]

    def row(self, i):
        if "x" in self.data:
            columns, values = np.arange(self.n_features), self.data["x"][i].astype(np.float64)
        else:
            at = slice(self.data["indptr"][i], self.data["indptr"][i + 1])
            columns, values = self.data["indices"][at].astype(np.int64), self.data["values"][at].astype(np.float64)
        return (np.append(columns, self.n_features), np.append(values, self.bias)) if self.bias else (columns, values)

    def keys(self):
        return {"binary": [()], "regression": [(0,), (1,)]}.get(self.kind) or [(j,) for j in range(self.n_blocks)]

    def is_key(self, i, key):  # noqa: ARG002 - as of a chain
        return key in self.keys()

    def margin(self, i, key):
        if self.kind == "binary":
            return float(self.data["margin"][i]) if "margin" in self.data else 1.0
        if self.kind == "regression":
            return (1.0 if key == (0,) else -1.0) * float(self.y[i]) - self.about["epsilon"]
        return float(self.about["loss"][self.y[i]][key[0]]) if self.about["loss"] else float(key[0] != self.y[i])

    def signs(self, i, key):
        if self.kind != "multiclass":
            return np.array([1.0 if (self.y[i] == 1 if self.kind == "binary" else key == (0,)) else -1.0])
        sign = (np.arange(self.n_blocks) == self.y[i]) * 1.0 - (np.arange(self.n_blocks) == key[0])
        return sign * (self.margin(i, key) if self.about["rescaling"] == "slack" else 1.0)

    def slack(self, w, i):
        columns, values = self.row(i)
        scores = w.reshape(self.n_blocks, -1)[:, columns] @ values
        return max(0.0, *(self.margin(i, key) - float(self.signs(i, key) @ scores) for key in self.keys()))

    def add(self, v, i, key, alpha):
        columns, values = self.row(i)
        for block, sign in enumerate(self.signs(i, key)):
            v[block * self.width + columns] += alpha * sign * values


class Chain(Linear):
    """w = [features × tags] [from × to] [start] [end]; the key is a tag for each token."""

    def __init__(self, about, data):
        super().__init__(about, data)
        k = self.tags = len(self.classes)
        pairs, ends = k * k * about["transitions"], k * about["boundaries"]
        self.sizes = [k * self.n_features, pairs, ends, ends]
        self.n_weights = sum(self.sizes)
        self.tag_cost = np.array([about["tag_cost"].get(tag, 1.0) for tag in self.classes], dtype=np.float64)
        self.slack_rescaled = about["rescaling"] == "slack"

    def right(self, i):
        return self.y[self.data["tokens"][i] : self.data["tokens"][i + 1]]

    def split(self, w):
        """Emission, pairs, start and end; zeros for those the problem does not have."""
        k, parts = self.tags, np.split(w, np.cumsum(self.sizes)[:-1])
        shapes = ((self.n_features, k), (k, k), (k,), (k,))
        return [p.reshape(s) if p.size else np.zeros(s) for p, s in zip(parts, shapes, strict=True)]

    def slack(self, w, i):
        """Viterbi over (number of wrong tags so far, tag); with margin rescaling one number serves for all."""
        (emission, pairs, start, end), right = self.split(w), self.right(i)
        rows = [self.row(self.data["tokens"][i] + t) for t in range(len(right))]
        scores = np.array([values @ emission[columns] for columns, values in rows])
        own = scores[np.arange(len(right)), right].sum()
        truth = own + pairs[right[:-1], right[1:]].sum() + start[right[0]] + end[right[-1]]
        wrong, nothing = np.arange(self.tags) != right[:, None], np.full(self.tags, -np.inf)
        if not self.slack_rescaled:
            scores = scores + wrong * self.tag_cost[right][:, None]
        best = np.full((len(right) + 1 if self.slack_rescaled else 1, self.tags), -np.inf)
        for t in range(len(right)):
            before = (best[:, :, None] + pairs).max(axis=1) if t else np.vstack([start, best[1:]])
            moved = np.vstack([nothing, before[:-1]]) if self.slack_rescaled else before
            best = np.where(wrong[t], moved, before) + scores[t]
        ahead = (best + end).max(axis=1) - truth
        if self.slack_rescaled:
            loss = self.tag_cost[0] * np.arange(len(ahead))
            ahead = (loss * (1.0 + ahead))[np.isfinite(ahead)]
        return max(0.0, float(ahead.max()))

    def is_key(self, i, key):
        return len(key) == len(self.right(i)) and all(0 <= tag < self.tags for tag in key)

    def margin(self, i, key):
        return float(self.tag_cost[self.right(i)][self.right(i) != np.array(key)].sum())

    def add(self, v, i, key, alpha):
        parts = self.split(np.zeros(self.n_weights))
        scale = alpha * (self.margin(i, key) if self.slack_rescaled else 1.0)
        for path, sign in ((self.right(i), scale), (np.array(key), -scale)):
            for t, tag in enumerate(path):
                columns, values = self.row(self.data["tokens"][i] + t)
                parts[0][columns, tag] += sign * values
            np.add.at(parts[1], (path[:-1], path[1:]), sign)
            parts[2][path[0]] += sign
            parts[3][path[-1]] += sign
        v += np.concatenate([p.ravel() for p, size in zip(parts, self.sizes, strict=True) if size])


PROBLEMS = {"binary": Linear, "multiclass": Linear, "regression": Linear, "chain": Chain}


# --- the model


def read_dual(folder, about):
    """The support constraints as (example, key, α)."""
    if about.get("dual", "examples") != "examples":
        raise NotCovered(f"a dual of kind {about['dual']!r}, not of single examples")
    names = ("example", "alpha", "key_indptr", "key_values")
    example, alpha, indptr, values = (np.load(folder / "dual" / f"{name}.npy", allow_pickle=False) for name in names)
    require(len(example) == len(alpha) == len(indptr) - 1, "the arrays of the dual differ in length")
    check_runs(indptr, len(values), 0, "key_indptr")
    keys = [tuple(values[a:b].tolist()) for a, b in itertools.pairwise(indptr)]
    return list(zip(example.tolist(), keys, alpha.astype(np.float64).tolist(), strict=True))


def read_prior(folder, names, n):
    given = {name: np.load(folder / "prior" / f"{name}.npy", allow_pickle=False) for name in names}
    mean, precision = given.get("mean", np.zeros(n)), given.get("precision", np.ones(n))
    if precision.ndim != 1:
        raise NotCovered("a prior whose precision is a matrix")
    floor = np.full(n, -np.inf)
    floor[given.get("nonnegative", np.empty(0, dtype=np.int64))] = 0.0
    require(mean.shape == precision.shape == (n,) and (precision > 0).all(), "the prior is not one of these weights")
    return mean, precision, floor


def check_digests(folder, certificate):
    """Every file that the numbers come from is what training wrote."""
    digests = certificate["sha256"]
    for name, digest in digests.items():
        require(not Path(name).is_absolute() and ".." not in Path(name).parts, f"certificate.json names {name}")
        require(
            hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest, f"{name} is not what training wrote"
        )


def current(folder):
    """Where the files are: in the folder itself or, if a replacement of the model was cut short, in that."""
    if not (folder / "replacement.json").exists():
        return folder
    name = read_json(folder / "replacement.json")["folder"]
    require(name.startswith("replacement-") and Path(name).name == name, f"replacement.json names {name!r}")
    return folder / name


def check(model, data=None, gap=None):
    """Recompute both bounds; return a sentence, or raise Refused."""
    folder = current(Path(model))
    about, certificate = read_json(folder / "model.json"), read_json(folder / "certificate.json")
    if about["problem"]["kind"] not in PROBLEMS or about.get("format") not in (1, 2):
        raise NotCovered(f"a model of kind {about['problem']['kind']!r}, format {about.get('format')!r}")
    check_digests(folder, certificate)
    seen = np.load(folder / "dual" / "checksum.npy", allow_pickle=False)
    source = Data(Path(data or about["data"]["url"]), len(seen))
    require((source.checksum == seen).all(), "the data set is not the one the model was trained on")
    require(source.fingerprint() == about["data"]["fingerprint"], "the data set means something else than in training")
    if {"feature_map", "expansion"} & set(about["problem"]):
        raise NotCovered("a model with a kernel")
    problem, C = PROBLEMS[about["problem"]["kind"]](about["problem"], source), float(about["C"])
    w = np.load(folder / "weights.npy", allow_pickle=False)
    require(w.dtype == np.float64 and w.shape == (problem.n_weights,), "the weights have another type or number")
    mean, precision, floor = read_prior(folder, about["prior"], len(w))
    require(bool(np.isfinite(w).all()), "a weight is NaN or infinite")
    require(bool((w >= floor).all()), "a weight is negative that must not be")
    require(0 < C < math.inf, f"C is {C}")
    support = read_dual(folder, about)
    loss, linear, v = add_up(source, problem, w, C, support)
    if getattr(problem, "free", False):
        mass = problem.bias * math.fsum(entry[2] for entry in support)
        require(abs(v[-1]) <= SAME * mass, f"the bias is free, but Σ α x of it is {v[-1]:.3g}")
        precision, v = np.append(precision[:-1], 0.0), v[:-1]
    upper = 0.5 * float((precision * (w - mean) ** 2).sum()) + C * loss
    mean, precision, floor = mean[: len(v)], precision[: len(v)], floor[: len(v)]
    best = np.maximum(mean + v / precision, floor)
    lower = linear - float(v @ best) + 0.5 * float((precision * (best - mean) ** 2).sum())
    return conclude(about, certificate, lower, upper, gap)


def add_up(source, problem, w, C, support):
    """Σ cost_i ξ_i(w), Σ α l and Σ α x over all shards; α must be feasible."""
    losses, margins, v = [], [], np.zeros(len(w))
    parts = [[] for _ in range(len(source.first) - 1)]
    for entry in support:
        require(0 <= entry[0] < source.first[-1], f"the dual names example {entry[0]}, which is not in the data set")
        parts[int(np.searchsorted(source.first, entry[0], side="right")) - 1].append(entry)
    for s, part in enumerate(parts):
        problem.begin(source.shard(s))
        require(bool((problem.cost >= 0).all()), f"shard {s}: a cost is below 0")
        losses += [problem.cost[i] * problem.slack(w, i) for i in range(problem.n)]
        used = np.zeros(problem.n)
        for example, key, alpha in part:
            i = example - int(source.first[s])
            require(problem.is_key(i, key), f"example {example} has no constraint {key}")
            require(0 <= alpha < math.inf, f"α of example {example} is {alpha}")
            used[i] += alpha
            margins.append(alpha * problem.margin(i, key))
            problem.add(v, i, key, alpha)
        beyond = np.flatnonzero(~(used <= C * problem.cost * (1 + SAME)))
        require(not len(beyond), f"shard {s}: α is not feasible for {len(beyond)} examples")
    return math.fsum(losses), math.fsum(margins), v


def conclude(about, certificate, lower, upper, gap):
    """Compare with what is claimed, and with the target."""
    claimed = {name: certificate[name] for name in ("lower", "upper", "gap", "rounding", "target")}
    require(all(isinstance(value, int | float) for value in claimed.values()), "certificate.json lacks a bound")
    rounding, solver = claimed["rounding"], about["config"]["solver"]
    require(0 <= rounding <= 1e-6 * abs(upper), f"a rounding of {rounding} is claimed")
    for name, found in (("lower", lower), ("upper", upper)):
        near = abs(found - claimed[name]) <= SAME * max(abs(found), abs(claimed[name])) + 2 * rounding
        require(near, f"{name} is {found:.12g}, certificate.json says {claimed[name]:.12g}")
    lower, upper = min(lower, claimed["lower"]), max(upper, claimed["upper"])
    require(lower <= upper and upper >= 0, f"the lower bound {lower:.10g} exceeds the upper bound {upper:.10g}")
    found = (upper - lower) / upper if upper > 0 else 0.0
    require(abs(found - claimed["gap"]) <= SAME, f"the gap is {found:.3g}, certificate.json says {claimed['gap']:.3g}")
    require(solver["C"] == about["C"], f"C is {about['C']}, the config of the run says {solver['C']}")
    require(solver["gap"] == claimed["target"], f"the target is {claimed['target']}, the config says {solver['gap']}")
    require(0 < claimed["target"] < 1, f"a target of {claimed['target']} proves nothing")
    target, whose = (claimed["target"], "the model's own") if gap is None else (gap, "as given")
    require(found <= target, f"the gap {found:.3g} is above the target {target:.3g} ({whose})")
    options = ", ".join(f"{name}={value}" for name, value in about["problem"].items() if name != "classes")
    return (
        f"checked: {lower:.10g} ≤ P(w*) ≤ {upper:.10g}, gap {found:.2e}, target {target:.2e} ({whose})\n"
        f"problem    C={about['C']:g}, {options}"
    )


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="distdual-check", description="Check a certificate in plain NumPy.")
    parser.add_argument("model", help="the model folder")
    parser.add_argument("data", nargs="?", help="the data set; default: the one that the model names")
    parser.add_argument("--gap", type=float, help="the target; default: the model's own")
    try:
        sentence, code = check(**vars(parser.parse_args(arguments))), 0
    except Refused as error:
        sentence, code = f"REFUSED: {error}", 1
    except (NotCovered, OSError, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        sentence, code = f"not checked: {type(error).__name__}: {error}", 2
    (sys.stderr if code == 2 else sys.stdout).write(sentence + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
