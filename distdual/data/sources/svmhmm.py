"""Blocks of sequences from SVM^hmm text.

A line is a token,  `tag qid:N index:value index:value … [# comment]`;  a line with another qid than the one before it
begins a new sequence. Tags are numbers, as in svmlight text.
"""

from collections.abc import Iterator

import numpy as np

from distdual.data.shard import Block
from distdual.data.sources.open_file import BLOCK_BYTES
from distdual.data.sources.sequences import TokenRun, whole_sequences
from distdual.data.sources.svmlight import NO_QID, Parsed, parse_text, whole_lines
from distdual.data.storage.location import Location
from distdual.errors import InputError


def blocks_from_svmhmm(source: Location, block_bytes: int = BLOCK_BYTES) -> Iterator[Block]:
    """The sequences of a text file, plain or compressed, local or remote."""
    return whole_sequences(read_sequences(source, block_bytes))


def read_sequences(source: Location, block_bytes: int) -> Iterator[TokenRun]:
    previous = NO_QID
    for first_line, text in whole_lines(source, block_bytes):
        parsed = parse_text(text, str(source), first_line)
        check_qids(parsed, text, str(source), first_line)
        if len(parsed.qid):
            begins = parsed.qid != np.append(previous, parsed.qid[:-1])
            previous = int(parsed.qid[-1])
            yield TokenRun(Block(parsed.x, parsed.y), begins)


def check_qids(parsed: Parsed, text: bytes, name: str, first_line: int) -> None:
    """Every token says which sequence it belongs to."""
    missing = np.flatnonzero(parsed.qid == NO_QID)
    if len(missing):
        lines = [k for k, line in enumerate(text.splitlines()) if line.partition(b"#")[0].strip()]
        raise InputError(f"{name}, line {first_line + lines[missing[0]]}: no qid; expected `tag qid:N index:value …`")
