"""Blocks of sparse examples from svmlight (libsvm) text.

A line is  `label [qid:N] index:value index:value … [# comment]`  with indices from 1, in rising order. Text is read
about 8 MB at a time, so memory does not grow with the file.
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distdual.data.shard import Block
from distdual.data.sources.open_file import BLOCK_BYTES, read_pieces
from distdual.data.storage.location import Location
from distdual.errors import InputError
from distdual.kernels.jit import inner_kernel, kernel
from distdual.kernels.rows import CsrRows, Floats, Int32s, Ints, Singles

Bytes = NDArray[np.uint8]

MAX_LINE = 256 << 20  # a file without line ends is not read whole before it is refused
MAX_INDEX = 2**31 - 1
NO_QID = -1

UNLABELLED = re.compile(rb"^(?=[ \t]*(?:\d+|qid):)", re.MULTILINE)  # the start of a line that begins with a feature

NEWLINE, HASH, COLON, DOT, PLUS, MINUS = 10, 35, 58, 46, 43, 45
ZERO, NINE = 48, 57
KEPT = 18  # decimal digits that surely fit an int64
POWERS = 10.0 ** np.arange(23)  # the powers of ten that float64 holds exactly
FLOAT32_OVERFLOW = 2.0**128 - 2.0**103  # from here on float32 rounds to infinity

GOOD, ROUGH, SLOW, MALFORMED, INDEX_ZERO, INDEX_LARGE, REPEATED, DISORDER, TOO_LARGE = range(9)
COMPLAINTS = {
    MALFORMED: "malformed token {}; expected `label index:value index:value …`",
    INDEX_ZERO: "feature index 0 in {}; indices count from 1",
    INDEX_LARGE: f"the feature index in {{}} is beyond {MAX_INDEX}",
    REPEATED: "the feature index in {} repeats the one before it; a line names each feature once",
    DISORDER: "the feature index in {} is smaller than the one before it; indices must rise along a line",
    TOO_LARGE: "the number {} is too large to be stored",
}


class Parsed(NamedTuple):
    """A run of lines as arrays."""

    x: CsrRows
    y: Floats
    qid: Ints  # NO_QID where a line has none


def blocks_from_svmlight(source: Location, block_bytes: int = BLOCK_BYTES, *, labelled: bool = True) -> Iterator[Block]:
    """The examples of a text file, plain or compressed, local or remote; any `qid` is read over.

    Lines without labels, if wanted, have the label 0.
    """
    for parsed in read_svmlight(source, block_bytes, labelled=labelled):
        yield Block(parsed.x, parsed.y)


def read_svmlight(source: Location, block_bytes: int = BLOCK_BYTES, *, labelled: bool = True) -> Iterator[Parsed]:
    for first_line, text in whole_lines(source, block_bytes):
        yield parse_text(text if labelled else UNLABELLED.sub(b"0 ", text), str(source), first_line)


def has_labels(source: Location) -> bool:
    """Whether the first example begins with a label rather than with a feature."""
    for _, text in whole_lines(source, BLOCK_BYTES):
        for line in text.splitlines():
            if words := line.partition(b"#")[0].split():
                return b":" not in words[0]
    return True


def whole_lines(source: Location, block_bytes: int) -> Iterator[tuple[int, bytes]]:
    """The text of a file in pieces that end with a line end, each with the number of its first line."""
    rest: list[bytes] = []
    held = 0
    line = 1
    for piece in read_pieces(source, block_bytes):
        cut = piece.rfind(b"\n") + 1
        if cut:
            text = b"".join([*rest, piece[:cut]])
            yield line, text
            line += count_bytes(text, NEWLINE)
            rest, held = [], 0
        rest.append(piece[cut:])
        held += len(piece) - cut
        if held > MAX_LINE:
            raise InputError(f"{source}, line {line}: the line is longer than {MAX_LINE >> 20} MB; is this text?")
    if held:
        yield line, b"".join([*rest, b"\n"])


def count_bytes(text: bytes, byte: int) -> int:
    return int(np.count_nonzero(np.frombuffer(text, dtype=np.uint8) == byte))


def parse_text(text: bytes, name: str, first_line: int) -> Parsed:
    """Parse whole lines; `name` and `first_line` are for messages only."""
    most_rows, most_values = count_bytes(text, NEWLINE), count_bytes(text, COLON)
    indptr: Ints = np.empty(most_rows + 1, dtype=np.int64)
    indices: Int32s = np.empty(most_values, dtype=np.int32)
    values: Singles = np.empty(most_values, dtype=np.float32)
    y: Floats = np.empty(most_rows, dtype=np.float64)
    qid: Ints = np.empty(most_rows, dtype=np.int64)
    slow: Ints = np.empty((most_rows + most_values, 3), dtype=np.int64)

    data = np.frombuffer(text, dtype=np.uint8)
    n, n_values, n_slow, status, at = parse_lines(data, indptr, indices, values, y, qid, slow)

    if status != GOOD:
        raise complaint(text, name, first_line, at, status)
    for begin, end, target in slow[:n_slow].tolist():
        number = float(text[begin:end])
        if abs(number) >= (np.inf if target < 0 else FLOAT32_OVERFLOW):
            raise complaint(text, name, first_line, begin, TOO_LARGE)
        if target < 0:
            y[-1 - target] = number
        else:
            values[target] = number
    x = CsrRows(indptr[: n + 1].copy(), indices[:n_values].copy(), values[:n_values].copy())
    return Parsed(x, y[:n].copy(), qid[:n].copy())


def complaint(text: bytes, name: str, first_line: int, at: int, status: int) -> InputError:
    token = token_at(text, at)
    what = COMPLAINTS[status].format(token)
    if status == MALFORMED and token[1:-1].rpartition(":")[2].lstrip("+-").lower() in ("nan", "inf", "infinity"):
        what = f"{token} is NaN or infinite; numbers must be finite"
    return InputError(f"{name}, line {line_of(text, first_line, at)}: {what}")


def line_of(text: bytes, first_line: int, at: int) -> int:
    return first_line + text.count(b"\n", 0, at)


def token_at(text: bytes, at: int) -> str:
    """What stands at a place, quoted, up to the next blank."""
    words = text[at : at + 200].split(maxsplit=1)
    word = words[0].decode("utf-8", "replace") if words else ""
    return repr(word if len(word) <= 40 else word[:40] + "…")


@kernel
def parse_lines(
    text: Bytes, indptr: Ints, indices: Int32s, values: Singles, y: Floats, qid: Ints, slow: Ints
) -> tuple[int, int, int, int, int]:
    """Parse whole lines into the arrays; return (rows, values, slow numbers, status, place of the first error).

    A number that these kernels cannot round rightly is left to the caller: slow[k] = (begin, end, target), where
    target is the value's place, or −1 − row for a label. The caller guarantees that text ends with a line end and
    that the arrays have room: one row a line, one value a colon.
    """
    at = row = n_values = n_slow = 0
    indptr[0] = 0
    while at < len(text):
        at = skip_blanks(text, at)
        if text[at] != NEWLINE and text[at] != HASH:
            begin = at
            y[row], at, status = scan_number(text, begin)
            if status in (ROUGH, SLOW):
                slow[n_slow] = begin, at, -1 - row
                n_slow += 1
            elif status != GOOD:
                return row, n_values, n_slow, status, begin
            at = skip_blanks(text, at)
            qid[row], at, status = scan_qid(text, at)
            if status != GOOD:
                return row, n_values, n_slow, status, at
            n_values, n_slow, status, at = parse_features(text, at, indices, values, n_values, slow, n_slow)
            if status != GOOD:
                return row, n_values, n_slow, status, at
            row += 1
            indptr[row] = n_values
        while text[at] != NEWLINE:
            at += 1
        at += 1
    return row, n_values, n_slow, GOOD, at


@inner_kernel
def parse_features(
    text: Bytes, at: int, indices: Int32s, values: Singles, n_values: int, slow: Ints, n_slow: int
) -> tuple[int, int, int, int]:
    """Parse `index:value …` up to the line end or a comment; return (values, slow numbers, status, place)."""
    previous = 0
    at = skip_blanks(text, at)
    while text[at] != NEWLINE and text[at] != HASH:
        token = at
        index, at = scan_integer(text, at, MAX_INDEX)
        if at == token or text[at] != COLON:
            return n_values, n_slow, MALFORMED, token
        if index <= previous or index > MAX_INDEX:
            return n_values, n_slow, index_status(index, previous), token
        previous = index
        begin = at + 1
        value, at, status = scan_number(text, begin)
        if status == SLOW or (status == ROUGH and not rounds_safely(value)):
            slow[n_slow] = begin, at, n_values
            n_slow += 1
            value = 0.0
        elif status not in (GOOD, ROUGH):
            return n_values, n_slow, status, token
        indices[n_values] = index - 1
        values[n_values] = value
        n_values += 1
        at = skip_blanks(text, at)
    return n_values, n_slow, GOOD, at


@inner_kernel
def index_status(index: int, previous: int) -> int:
    if index > MAX_INDEX:
        return INDEX_LARGE
    if index == 0:
        return INDEX_ZERO
    return REPEATED if index == previous else DISORDER


@inner_kernel
def scan_number(text: Bytes, at: int) -> tuple[float, int, int]:
    """Read a decimal number; return (value, end, status).

    With at most 15 digits m and |e| ≤ 22, both m and 10^|e| are exact in float64, so m · 10^e or m / 10^−e is
    rounded once and hence right. With more digits, of which 18 are kept, the value is ROUGH: right but for three
    roundings, a relative error below 2⁻⁵¹. Every other number is SLOW.
    """
    negative = text[at] == MINUS
    if negative or text[at] == PLUS:
        at += 1
    first = at
    mantissa, digits, at = scan_digits(text, at, 0, 0)
    n_digits = at - first
    exponent = 0
    if text[at] == DOT:
        point = at + 1
        mantissa, digits, at = scan_digits(text, point, mantissa, digits)
        exponent = point - at
        n_digits += at - point
    if n_digits == 0:
        return 0.0, at, MALFORMED
    if text[at] == 69 or text[at] == 101:  # e, E
        down = text[at + 1] == MINUS
        sign = 1 if down or text[at + 1] == PLUS else 0
        begin = at + 1 + sign
        power, at = scan_integer(text, begin, 10**6)
        if at == begin:
            return 0.0, at, MALFORMED
        exponent += -power if down else power
    if not ends_token(text[at]):
        return 0.0, at, MALFORMED
    exponent += max(0, digits - KEPT)
    value = float(mantissa)
    if mantissa != 0:
        if abs(exponent) > 22:
            return 0.0, at, SLOW
        value = value / POWERS[-exponent] if exponent < 0 else value * POWERS[exponent]
    return (-value if negative else value), at, (GOOD if digits <= 15 else ROUGH)


@inner_kernel
def rounds_safely(value: float) -> bool:
    """Whether all numbers within a relative 2⁻⁵⁰ of `value` round to the same finite float32."""
    if abs(value) > 3e38:
        return False
    low, high = np.float32(value * (1.0 - 2.0**-50)), np.float32(value * (1.0 + 2.0**-50))
    return bool(low == high)


@inner_kernel
def scan_digits(text: Bytes, at: int, mantissa: int, digits: int) -> tuple[int, int, int]:
    """Append digits to a mantissa; after its leading zeros it keeps the first 18, `digits` counts all."""
    while ZERO <= text[at] <= NINE:
        if digits < KEPT:
            mantissa = mantissa * 10 + (int(text[at]) - ZERO)
        if mantissa != 0:
            digits += 1
        at += 1
    return mantissa, digits, at


@inner_kernel
def scan_integer(text: Bytes, at: int, most: int) -> tuple[int, int]:
    """Read digits; return (number, end), where all numbers beyond `most` come out as most + 1."""
    number = 0
    while ZERO <= text[at] <= NINE:
        number = min(number * 10 + (int(text[at]) - ZERO), most + 1)
        at += 1
    return number, at


@inner_kernel
def scan_qid(text: Bytes, at: int) -> tuple[int, int, int]:
    """Read `qid:N` if it stands here; return (N or NO_QID, end, status)."""
    if text[at] != 113:  # q
        return NO_QID, at, GOOD
    if text[at + 1] == 105 and text[at + 2] == 100 and text[at + 3] == COLON:  # i, d
        number, end = scan_integer(text, at + 4, 10**17)
        if end > at + 4 and number <= 10**17 and ends_token(text[end]):
            return number, end, GOOD
    return NO_QID, at, MALFORMED


@inner_kernel
def skip_blanks(text: Bytes, at: int) -> int:
    while is_blank(text[at]):
        at += 1
    return at


@inner_kernel
def is_blank(c: Any) -> bool:
    """Space, tab, vertical tab, form feed, or the carriage return of a Windows line end."""
    return c in (9, 32) or 11 <= c <= 13


@inner_kernel
def ends_token(c: Any) -> bool:
    return c in (NEWLINE, HASH) or is_blank(c)
