"""Changes to stored files that keep their form: checksums and digests are made right again."""

import copy
import hashlib
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
from numcodecs import blosc

from distdual.data.layout import Layout
from distdual.data.shard_arrays import checksum_of

Random = np.random.Generator

VALUES: list[Any] = [
    None, True, -1, 0, 1, 3, 2**31, 2**63, 10**400, -(10**30), 0.5, float("nan"), float("inf"), "", "x", "inf", "../x",
    "\x00", [], {}, [[]], [None], {"a": 1}, 1e308, -1.0, "binary", "float64",
]  # fmt: skip
NUMBERS: list[float] = [0, 1, -1, 2, 3, 7, 100, 10**6, 2**31 - 1, -(2**31), 2**62, -(2**62), 0.5, 1e30, -1e30]
NAN: list[float] = [float("nan"), float("inf"), float("-inf")]


def pick(rng: Random, options: Any) -> Any:
    return list(options)[int(rng.integers(len(options)))]


# --- JSON


def nodes(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of everything below a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from nodes(inner, (*path, key))


def change_json(rng: Random, value: Any) -> Any:
    value = copy.deepcopy(value)
    path = pick(rng, list(nodes(value)))
    parent = value
    for key in path[:-1]:
        parent = parent[key]
    old, key = parent[path[-1]], path[-1]
    match int(rng.integers(4)):
        case 0:
            del parent[key]
        case 1 if isinstance(old, int | float):
            parent[key] = pick(rng, [old + 1, old - 1, -old, old * 2, old * 10**9, float(old)])
        case 2 if isinstance(old, list):
            parent[key] = pick(rng, [old[:-1], old + old[:1], old[::-1], old * 3])
        case _:
            parent[key] = pick(rng, VALUES)
    return value


# --- arrays


def change_array(rng: Random, array: Any) -> Any:
    """Another array: wrong numbers more often than a wrong form."""
    changed = np.array(array)
    match int(rng.integers(8)):
        case 0:
            return np.concatenate([changed, changed[:1]]) if changed.ndim else changed
        case 1:
            return changed[:-1] if changed.ndim else changed
        case 2:
            with np.errstate(all="ignore"):
                return changed.astype(pick(rng, ["int8", "int32", "int64", "float32", "float64", "uint64", "U3"]))
        case 3:
            return changed.reshape(1, *changed.shape)
        case 4:
            return shifted(changed)
        case _:
            return scattered(rng, changed)


def shifted(array: Any) -> Any:
    """Counted from 1."""
    with np.errstate(all="ignore"):
        return (array + array.dtype.type(1)) if array.dtype.kind in "iuf" else array


def scattered(rng: Random, array: Any) -> Any:
    """A few numbers replaced, in an array of the same form."""
    if not array.size or array.dtype.kind not in "iuf":
        return array
    flat = array.reshape(-1)
    for _ in range(int(rng.integers(1, 4))):
        value = pick(rng, NUMBERS + (NAN if array.dtype.kind == "f" else []))
        with np.errstate(all="ignore"):
            flat[int(rng.integers(len(flat)))] = np.array(value).astype(array.dtype)
    return flat.reshape(array.shape)


# --- a data set


def change_data(rng: Random, data: Path) -> str:
    """Change a data set in place, and say what was changed."""
    about = json.loads((data / "zarr.json").read_text())
    layout = Layout.from_attributes(about["attributes"]["distdual"])
    options: list[Callable[[], str]] = [
        lambda: change_attributes(rng, data, about),
        lambda: change_metadata(rng, data, about),
        lambda: change_table(rng, data),
    ]
    options += [lambda: change_chunk(rng, data, layout)] * 7
    options += [lambda: change_text(rng, data, about, layout)] * bool(layout.texts)
    return str(pick(rng, options)())


def write_about(data: Path, about: Any) -> None:
    (data / "zarr.json").write_text(json.dumps(about))


def change_attributes(rng: Random, data: Path, about: Any) -> str:
    about["attributes"]["distdual"] = change_json(rng, about["attributes"]["distdual"])
    write_about(data, about)
    return "attributes"


def change_metadata(rng: Random, data: Path, about: Any) -> str:
    arrays = about["consolidated_metadata"]["metadata"]
    name = pick(rng, arrays)
    arrays[name] = change_json(rng, arrays[name])
    write_about(data, about)
    return f"metadata of {name}"


def encoded(values: Any, *, compressed: bool) -> bytes:
    content = np.ascontiguousarray(values).tobytes()
    if compressed:
        content = blosc.compress(content, b"lz4", 5, blosc.SHUFFLE) if content else content
    return content + google_crc32c.extend(0, content).to_bytes(4, "little")


def change_chunk(rng: Random, data: Path, layout: Layout) -> str:
    """Change an array of a shard, and repair the checksums of its chunk and of the shard."""
    lengths, checksum = read_table(data, "lengths"), read_table(data, "checksum")
    shard, spec = int(rng.integers(len(lengths))), pick(rng, layout.arrays)
    size = dict(zip(layout.axes, lengths[shard].tolist(), strict=True))
    arrays = {one.name: read_chunk(data, layout, one, shard)[: size[one.axis] + one.extra] for one in layout.arrays}
    whole = read_chunk(data, layout, spec, shard)
    used = whole[: size[spec.axis] + spec.extra]
    changed = change_array(rng, used)
    if changed.shape == used.shape and changed.dtype == used.dtype:
        arrays[spec.name] = changed
        whole[: len(changed)] = changed
        checksum[shard] = checksum_of(arrays, layout)
        write_table(data, "checksum", checksum)
    else:
        whole = changed
    compressed = layout.compress or not spec.width
    (data / spec.chunk_key(shard)).write_bytes(encoded(whole, compressed=compressed))
    return f"chunk {shard} of {spec.name}"


def read_chunk(data: Path, layout: Layout, spec: Any, shard: int) -> Any:
    content = (data / spec.chunk_key(shard)).read_bytes()[:-4]
    if layout.compress or not spec.width:
        content = blosc.decompress(content)
    return np.frombuffer(bytearray(content), dtype=spec.dtype).reshape(layout.chunk_shape(spec))


def read_table(data: Path, name: str) -> Any:
    import zarr

    return np.asarray(zarr.open_group(data, mode="r")[name][:])


def write_table(data: Path, name: str, values: Any) -> None:
    import zarr

    zarr.open_group(data, mode="r+")[name][:] = values


def change_table(rng: Random, data: Path) -> str:
    name = pick(rng, ["lengths", "largest_norm", "checksum"])
    write_table(data, name, scattered(rng, read_table(data, name)))
    return f"table {name}"


def change_text(rng: Random, data: Path, about: Any, layout: Layout) -> str:
    name = pick(rng, layout.texts)
    (chunk,) = (data / f"text_{name}" / "c").iterdir()
    content = bytearray(blosc.decompress(chunk.read_bytes()[:-4]))
    used = about["consolidated_metadata"]["metadata"][f"text_{name}"]["shape"][0]
    lines = bytes(content[:used]).split(b"\n")
    at = int(rng.integers(len(lines)))
    lines[at] = pick(rng, [b"", b"\xff\xfe", b"binary 0 0 0", b"word 99 0", b"{}", lines[at][::-1], lines[at] + b"0"])
    text = b"\n".join(lines)[:used].ljust(used, b"\n")
    content[:used] = text
    chunk.write_bytes(encoded(np.frombuffer(bytes(content), dtype=np.uint8), compressed=True))
    about["attributes"]["distdual"]["texts"][name] = google_crc32c.extend(0, text)
    write_about(data, about)
    return f"text {name}"


# --- a model


def change_model(rng: Random, model: Path) -> str:
    """Change a model in place, and repair its digests."""
    files = [path for path in sorted(model.rglob("*")) if path.is_file()]
    path = pick(rng, files)
    if path.suffix == ".json":
        path.write_text(json.dumps(change_json(rng, json.loads(path.read_text()))))
    elif path.suffix == ".npy":
        path.write_bytes(npy(change_array(rng, np.load(path))))
    elif path.suffix == ".npz":
        path.write_bytes(change_npz(rng, path.read_bytes()))
    else:
        path.write_bytes(path.read_bytes()[::-1])
    repair(model)
    return str(path.relative_to(model))


def repair(model: Path) -> None:
    certificate = json.loads((model / "certificate.json").read_text())
    digests = certificate.get("sha256") if isinstance(certificate, dict) else None
    for name in digests if isinstance(digests, dict) else ():
        if (model / name).is_file():
            digests[name] = hashlib.sha256((model / name).read_bytes()).hexdigest()
    (model / "certificate.json").write_text(json.dumps(certificate))


def npy(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def change_npz(rng: Random, content: bytes) -> bytes:
    arrays = dict(np.load(io.BytesIO(content)))
    if not arrays:
        return content
    name = pick(rng, arrays)
    if rng.random() < 0.1:
        del arrays[name]
    else:
        arrays[name] = change_array(rng, arrays[name])
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


# --- a checkpoint


def change_checkpoint(rng: Random, output: Path) -> str:
    """Change a checkpoint in place, and repair the digests of its manifest."""
    folder = output / "checkpoint"
    manifest = json.loads((folder / "manifest.json").read_text())
    name = pick(rng, [*manifest["files"], "manifest.json"])
    path = folder / name
    if name.endswith(".npz"):
        path.write_bytes(change_npz(rng, path.read_bytes()))
    elif name.endswith(".json"):
        path.write_text(json.dumps(change_json(rng, json.loads(path.read_text()))))
    else:
        path.write_bytes(bytes(reversed(path.read_bytes())))
    if name in manifest["files"]:
        manifest["files"][name] = hashlib.sha256(path.read_bytes()).hexdigest()
        (folder / "manifest.json").write_text(json.dumps(manifest))
    return name


def repair_checkpoint(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    for name in manifest["files"]:
        manifest["files"][name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))
