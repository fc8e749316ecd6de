"""An independent check of a model's certificate, in plain NumPy: `python distdual_check.py MODEL [DATA] [--gap GAP]`.

Shares no code with the rest of distdual, so that it can be read and trusted by itself. From the files it recomputes

    upper = P(w) = R(w) + C Σ_i cost_i max(0, max_j l_ij − ⟨w, x_ij⟩)       all constraints of all examples
    lower = D(α) = Σ α l − R*(Σ α x)        the support constraints, rebuilt from the data by example and key

with R(w) = 1/2 Σ_k λ_k (w_k − m_k)², for binary, multiclass, regression and chain problems in local folders, with
diagonal priors and w_k ≥ 0, where each example has a slack of its own. Anything else is an error, never skipped.
Exit code: 0 checked, 1 refused, 2 not covered (NotImplementedError) or no such file.
"""

import argparse
import hashlib
import io
import itertools
import json
import math
import sys
from pathlib import Path

import numpy as np

SAME = 1e-9  # largest relative difference between a recomputed and a recorded number


def require(holds, sentence):
    if not holds:
        raise ValueError(sentence)


def check_runs(indptr, end, least, what):
    divides = indptr[0] == 0 and indptr[-1] == end and (np.diff(indptr) >= least).all()
    require(divides, f"{what} does not divide {end} entries")


# --- chunks: crc32c, Blosc and LZ4

TABLE = list(range(256))  # of crc32c, for the polynomial 0x82F63B78
for _ in range(8):
    TABLE = [entry >> 1 ^ 0x82F63B78 * (entry & 1) for entry in TABLE]


def crc32c(data):
    state = 0xFFFFFFFF
    for byte in data:
        state = TABLE[(state ^ byte) & 0xFF] ^ state >> 8
    return state ^ 0xFFFFFFFF


def lz4(source, size):
    """One LZ4 block: by turns bytes that are new and copies of earlier ones."""
    out, rest = bytearray(), iter(source)

    def extended(length):
        more = 255 if length == 15 else 0  # it grows by the bytes that follow, up to one below 255
        while more == 255:
            more = next(rest, 0)
            length += more
        return length

    for token in rest:
        out += bytes(itertools.islice(rest, extended(token >> 4)))
        offset = next(rest, 0) + 256 * next(rest, 0)
        for _ in range(min(extended(token & 15) + 4, size) if offset else 0):
            out.append(out[-offset])
    return bytes(out)


def blosc(source):
    """A Blosc 1 frame of LZ4 blocks, with or without byte shuffle."""
    flags, item = source[2], source[3]
    size, block, _ = np.frombuffer(source[4:16], dtype="<u4").tolist()
    if flags & 2:
        return source[16 : 16 + size]
    if flags >> 5 != 1 or flags & 4:
        raise NotImplementedError("a chunk is compressed by something else than LZ4 with byte shuffle")
    starts = np.frombuffer(source[16:], dtype="<u4", count=-(-size // block)).tolist()
    lengths = [min(block, size - number * block) for number in range(len(starts))]
    whole = not flags & 16 and item <= 16 and block // item >= 128
    splits = [item if whole and length == block else 1 for length in lengths]
    shuffled = item if flags & 1 else 1
    return b"".join(blosc_block(source[at:], n, k, shuffled) for at, n, k in zip(starts, lengths, splits, strict=True))


def blosc_block(source, length, n_splits, shuffled):
    plain, at = b"", 0
    for _ in range(n_splits):
        packed = int.from_bytes(source[at : at + 4], "little")
        body = source[at + 4 : at + 4 + packed]
        at += 4 + packed
        plain += body if packed == length // n_splits else lz4(body, length // n_splits)
    n = length // shuffled * shuffled
    return np.frombuffer(plain[:n], dtype=np.uint8).reshape(shuffled, -1).T.tobytes() + plain[n:]


def read(path):
    """The bytes of a file; reading a pipe in its place would not end."""
    require(path.is_file() or not path.exists(), f"{path} is not a file")
    return path.read_bytes()


def read_chunk(folder, name, number):
    """Chunk `number` along the first axis of an array; the crc32c at its end is left to the checksum of the shard."""
    about = json.loads(read(folder / name / "zarr.json"))
    shape = about["chunk_grid"]["configuration"]["chunk_shape"]
    separator = about["chunk_key_encoding"]["configuration"]["separator"]
    content = read(folder / name / separator.join(["c", str(number), *["0"] * (len(shape) - 1)]))[:-4]
    codecs = [codec["name"] for codec in about["codecs"]]
    if codecs not in (["bytes", "crc32c"], ["bytes", "blosc", "crc32c"]):
        raise NotImplementedError(f"{folder}/{name}: codecs {codecs}")
    plain = blosc(content) if "blosc" in codecs else content
    return np.frombuffer(plain, dtype=np.dtype(about["data_type"]).newbyteorder("<")).reshape(shape)


def read_table(folder, name, n):
    size = json.loads(read(folder / name / "zarr.json"))["chunk_grid"]["configuration"]["chunk_shape"][0]
    return np.concatenate([read_chunk(folder, name, k) for k in range(-(-n // size))])[:n]


class Data:
    """The first n_shards shards of a data set."""

    def __init__(self, folder, n_shards):
        texts = (layout := json.loads(read(folder / "zarr.json"))["attributes"]["distdual"]).get("texts", {})
        if layout.get("runs") or {*texts} - {"columns", "map", "scale"} or layout["format"] > 3:
            raise NotImplementedError("the data set has columns of runs, other texts or another format")
        self.folder, self.layout, self.sparse = folder, layout, layout["features"] == "csr"
        self.lengths, self.checksum = (read_table(folder, name, n_shards) for name in ("lengths", "checksum"))
        meaning = [layout["kind"], layout["n_features"], self.sparse, layout["labels"], layout["columns"]]
        content = json.dumps(meaning + ([{}, texts] if texts else [])).encode()  # as the model recorded it
        self.fingerprint = hashlib.sha256(content + self.lengths.tobytes() + self.checksum.tobytes()).hexdigest()
        features = [("indptr", "row"), ("indices", "value"), ("values", "value")] if self.sparse else [("x", "row")]
        tokens = [("tokens", "example")] if layout.get("ragged") else []
        self.arrays = [*features, ("y", "row"), *tokens, *((name, "example") for name in layout["columns"])]

    def shard(self, s):
        """The arrays of shard s without padding, after checking their crc32c and all that points into another."""
        n, n_values, *n_tokens = self.lengths[s].tolist()
        axes = {"example": n, "value": n_values, "row": n_tokens[0] if n_tokens else n}
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
            check_runs(found["tokens"], len(found["y"]), 1, f"shard {s}: tokens")
        return found


# --- problems: every row of features as (columns, values), constants such as the bias appended
class Linear:
    """Binary, regression, multiclass: one block of weights, or one for each class; x_ij = signs ⊗ (features, bias)."""

    def __init__(self, about, data):
        if {name for name, value in about.items() if value != LEFT_OUT.get(name, ...)} - OPTIONS:
            raise NotImplementedError(f"one of the options {sorted(about)}")
        self.about, self.kind, self.classes = about, about["kind"], list(about["classes"])
        self.n_features, self.free = about["n_features"], about.get("bias") == "free"
        self.bias = float(np.float32(about["bias_unit"] if self.free else about.get("bias", 0.0)))
        self.n_blocks = len(self.classes) if self.kind == "multiclass" else 1
        self.width = self.n_features + (self.bias != 0)
        self.n_weights = self.n_blocks * self.width
        same = self.n_features == data.layout["n_features"] and sorted(self.classes) == sorted(data.layout["labels"])
        require(same, "the model has other features or classes than the data set")
        self.class_of = {code: self.classes.index(label) for code, label in enumerate(data.layout["labels"])}

    def begin(self, shard):
        self.data, self.y = shard, shard["y"]
        if self.classes:
            self.y = np.array([self.class_of[code] for code in shard["y"].tolist()])
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

    def constraints(self, i):
        """The margin, and the sign of each block, of every constraint of example i by its key."""
        y = self.y[i]
        if self.kind == "binary":
            margin = float(self.data["margin"][i]) if "margin" in self.data else 1.0
            return {(): (margin, np.array([1.0 if y == 1 else -1.0]))}
        if self.kind == "regression":
            epsilon = self.about["epsilon"]
            return {(0,): (float(y) - epsilon, np.ones(1)), (1,): (-float(y) - epsilon, -np.ones(1))}
        classes = np.eye(self.n_blocks)
        loss = np.array(self.about["loss"][y]) if self.about["loss"] else 1.0 - classes[y]
        signs = (classes[y] - classes) * (loss[:, np.newaxis] if self.about["rescaling"] == "slack" else 1.0)
        return {(j,): (float(loss[j]), signs[j]) for j in range(self.n_blocks)}

    def slack(self, w, i):
        columns, values = self.row(i)
        scores = w.reshape(self.n_blocks, -1)[:, columns] @ values
        return max(0.0, *(margin - float(signs @ scores) for margin, signs in self.constraints(i).values()))

    def add(self, v, i, key, alpha):
        """Add α x_ij to v, and return the margin l_ij."""
        found = self.constraints(i)
        require(key in found, f"an example has no constraint {key}")
        margin, signs = found[key]
        columns, values = self.row(i)
        for block, sign in enumerate(signs):
            np.add.at(v, block * self.width + columns, alpha * sign * values)
        return margin


class Chain(Linear):
    """w = [features × tags] [from × to] [start] [end]; the key is a tag for each token."""

    def __init__(self, about, data):
        super().__init__(about, data)
        k = self.tags = len(self.classes)
        pairs, ends = k * k * about["transitions"], k * about["boundaries"]
        self.sizes = [k * self.n_features, pairs, ends, ends]
        self.n_weights = sum(self.sizes)
        self.tag_cost = np.array([about["tag_cost"].get(tag, 1.0) for tag in self.classes], dtype=np.float64)

    def right(self, i):
        return self.y[self.data["tokens"][i] : self.data["tokens"][i + 1]]

    def split(self, w):
        """Emission, pairs, start and end; zeros for those the problem does not have."""
        k, parts = self.tags, np.split(w, np.cumsum(self.sizes)[:-1])
        shapes = ((self.n_features, k), (k, k), (k,), (k,))
        return [p.reshape(s) if p.size else np.zeros(s) for p, s in zip(parts, shapes, strict=True)]

    def slack(self, w, i):
        """Viterbi over (number of wrong tags so far, tag)."""
        (emission, pairs, start, end), right = self.split(w), self.right(i)
        scores = np.array([x @ emission[j] for j, x in map(self.row, range(*self.data["tokens"][i : i + 2]))])
        own = scores[np.arange(len(right)), right].sum()
        truth = own + pairs[right[:-1], right[1:]].sum() + start[right[0]] + end[right[-1]]
        wrong, nothing = np.arange(self.tags) != right[:, None], np.full(self.tags, -np.inf)
        if self.about["rescaling"] == "margin":
            scores = scores + wrong * self.tag_cost[right][:, None]
        before = np.vstack([start, *[nothing] * len(right)])
        for t in range(len(right)):
            best = np.where(wrong[t], np.vstack([nothing, before[:-1]]), before) + scores[t]
            before = (best[:, :, None] + pairs).max(axis=1)
        ahead = (best + end).max(axis=1) - truth
        if self.about["rescaling"] == "slack":
            ahead = self.tag_cost[0] * np.arange(len(ahead)) * (1.0 + np.maximum(ahead, -1.0))
        return max(0.0, float(ahead.max()))

    def add(self, v, i, key, alpha):
        right, wrong = self.right(i), np.array(key, dtype=np.int64)
        require(len(key) == len(right) and all(0 <= tag < self.tags for tag in key), f"a sequence has no tags {key}")
        margin = float(self.tag_cost[right][right != wrong].sum())
        parts = self.split(np.zeros(self.n_weights))
        scale = alpha * (margin if self.about["rescaling"] == "slack" else 1.0)
        for path, sign in ((right, scale), (wrong, -scale)):
            for t, tag in enumerate(path):
                columns, values = self.row(self.data["tokens"][i] + t)
                np.add.at(parts[0], (columns, tag), sign * values)
            np.add.at(parts[1], (path[:-1], path[1:]), sign)
            parts[2][path[0]] += sign
            parts[3][path[-1]] += sign
        v += np.concatenate([p.ravel() for p, size in zip(parts, self.sizes, strict=True) if size])
        return margin


PROBLEMS = {"binary": Linear, "multiclass": Linear, "regression": Linear, "chain": Chain}
OPTIONS = {"kind", "classes", "n_features", "bias", "class_cost", "epsilon", "loss", "rescaling"}
OPTIONS |= {"bias_unit", "transitions", "boundaries", "tag_cost"}
LEFT_OUT = {"order": 1, "edge_features": 0, "forbidden": []}  # options that are not implemented, where they do nothing


def load(folder, *names):
    return [np.load(io.BytesIO(read(folder / f"{name}.npy")), allow_pickle=False) for name in names]


def open_model(folder):
    """Where its files are, model.json and certificate.json, if all files are what training wrote."""
    if (folder / "replacement.json").exists():  # by another model, which was cut short
        name = json.loads(read(folder / "replacement.json"))["folder"]
        require(name.startswith("replacement-") and Path(name).name == name, f"replacement.json names {name!r}")
        folder = folder / name
    about, certificate = (json.loads(read(folder / name)) for name in ("model.json", "certificate.json"))
    for name, digest in certificate["sha256"].items():
        require(not Path(name).is_absolute() and ".." not in Path(name).parts, f"certificate.json names {name}")
        require(hashlib.sha256(read(folder / name)).hexdigest() == digest, f"{name} is not what training wrote")
    return folder, about, certificate


def read_dual(folder):
    """The support constraints of each example, as (key, α)."""
    example, alpha, indptr, values = load(folder, "example", "alpha", "key_indptr", "key_values")
    check_runs(indptr, len(values), 0, "key_indptr")
    found = {}
    for i, a, (start, end) in zip(example.tolist(), alpha.tolist(), itertools.pairwise(indptr), strict=True):
        found.setdefault(i, []).append((tuple(values[start:end].tolist()), a))
    return found


def read_prior(folder, names, n):
    """The mean, the precision and the least value of each weight."""
    given = dict(zip(names, load(folder, *names), strict=True))
    mean, precision, least = given.pop("mean", np.zeros(n)), given.pop("precision", np.ones(n)), np.full(n, -np.inf)
    least[given.pop("nonnegative", [])] = 0.0
    if given or precision.ndim != 1:
        raise NotImplementedError(f"a prior of {names} where the precision has {precision.ndim} axes")
    require(mean.shape == precision.shape == (n,) and (precision > 0).all(), "the prior is not one of these weights")
    return mean, precision, least


def check(model, data=None, gap=None):
    """Recompute both bounds, and say what they are."""
    folder, about, certificate = open_model(Path(model))
    kind, dual = about["problem"]["kind"], about.get("dual", "examples")
    if kind not in PROBLEMS or about.get("format") not in (1, 2) or dual != "examples":
        raise NotImplementedError(f"a model of kind {kind!r}, format {about.get('format')!r}, dual {dual!r}")
    (w,), (seen,) = load(folder, "weights"), load(folder / "dual", "checksum")
    source, C = Data(Path(data or about["data"]["url"]), len(seen)), float(about["C"])
    require((source.checksum == seen).all(), "the data set is not the one the model was trained on")
    require(source.fingerprint == about["data"]["fingerprint"], "the data set means something else than in training")
    problem = PROBLEMS[kind](about["problem"], source)
    require(w.dtype == np.float64 and w.shape == (problem.n_weights,), "the weights have another type or number")
    mean, precision, least = read_prior(folder / "prior", about["prior"], len(w))
    require(np.isfinite(w).all() and (w >= least).all(), "a weight is not finite, or negative but must not be")
    loss, linear, v, mass = add_up(source, problem, w, C, read_dual(folder / "dual"))
    if problem.free:  # R leaves the last weight out, so Σ α x of it must be 0
        require(abs(v[-1]) <= SAME * problem.bias * mass, f"the bias is free, but Σ α x of it is {v[-1]:.3g}")
        w, v, mean, precision, least = (each[:-1] for each in (w, v, mean, precision, least))
    upper = 0.5 * float((precision * (w - mean) ** 2).sum()) + C * loss
    best = np.maximum(mean + v / precision, least)
    lower = linear - float(v @ best) + 0.5 * float((precision * (best - mean) ** 2).sum())
    return conclude(about, certificate, lower, upper, gap)


def add_up(source, problem, w, C, support):
    """Σ cost_i ξ_i(w), Σ α l, Σ α x and Σ α over all shards; α must be feasible."""
    losses, margins, v, mass, first = [], [], np.zeros(len(w)), 0.0, 0
    for s in range(len(source.lengths)):
        problem.begin(source.shard(s))
        for i in range(problem.n):
            losses.append(problem.cost[i] * problem.slack(w, i))
            own = support.pop(first + i, [])
            least, total = min((alpha for _, alpha in own), default=0.0), math.fsum(alpha for _, alpha in own)
            feasible = least >= 0 and total <= C * problem.cost[i] * (1 + SAME)
            require(feasible, f"α of example {first + i} is not between 0 and its capacity")
            margins += [alpha * problem.add(v, i, key, alpha) for key, alpha in own]
            mass += total
        first += problem.n
    require(not support, f"the dual names examples {sorted(support)[:3]}, which are not in the data set")
    return math.fsum(losses), math.fsum(margins), v, mass


def conclude(about, certificate, lower, upper, gap):
    """Compare with what is claimed, and with the target."""
    rounding, target, solver = certificate["rounding"], certificate["target"], about["config"]["solver"]
    require(0 <= rounding <= 1e-6 * abs(upper), f"a rounding of {rounding} is claimed")
    for name, found in (("lower", lower), ("upper", upper)):
        claimed = certificate[name]
        near = math.isclose(found, claimed, rel_tol=SAME, abs_tol=2 * rounding)
        require(near, f"{name} is {found:.12g}, certificate.json says {claimed:.12g}")
    lower, upper = min(lower, certificate["lower"]), max(upper, certificate["upper"])
    require(lower <= upper and upper >= 0, f"the lower bound {lower:.10g} exceeds the upper bound {upper:.10g}")
    found = (upper - lower) / upper if upper > 0 else 0.0
    require(abs(found - certificate["gap"]) <= SAME, f"the gap is {found:.3g}, not {certificate['gap']:.3g}")
    for name, value in (("C", about["C"]), ("gap", target)):
        require(0 < value == solver[name] < math.inf, f"{name} is {value}, the config of the run says {solver[name]}")
    target, whose = (target, "the model's own") if gap is None else (gap, "as given")
    require(found <= target < 1, f"the gap {found:.3g} is above the target {target:.3g} ({whose})")
    options = ", ".join(f"{name}={value}" for name, value in about["problem"].items() if name != "classes")
    bounds = f"{lower:.10g} ≤ P(w*) ≤ {upper:.10g}, gap {found:.2e}, target {target:.2e} ({whose})"
    return f"checked: {bounds}\nproblem    C={about['C']:g}, {options}"


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="distdual-check", description="Check a certificate in plain NumPy.")
    parser.add_argument("model", help="the model folder")
    parser.add_argument("data", nargs="?", help="the data set; default: the one that the model names")
    parser.add_argument("--gap", type=float, help="the target; default: the model's own")
    try:
        sentence, code = check(**vars(parser.parse_args(arguments))), 0
    except (NotImplementedError, OSError) as error:
        sentence, code = f"not checked: {error}", 2
    except Exception as error:  # whatever is wrong with a file, it proves nothing
        sentence, code = f"REFUSED: {error} ({type(error).__name__})", 1
    (sys.stderr if code == 2 else sys.stdout).write(sentence + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
