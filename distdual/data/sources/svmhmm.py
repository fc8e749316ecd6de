"""Blocks of sequences from SVM^hmm text.

A line is a token,  `tag qid:N index:value index:value … [# comment]`;  a line with another qid than the one before it
begins a new sequence, and the lines of a sequence follow each other. Tags are numbers, as in svmlight text.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np

from distdual.data.shard import Block
from distdual.data.sources.open_file import BLOCK_BYTES
from distdual.data.sources.sequences import Names, TokenRun, whole_sequences
from distdual.data.sources.svmlight import NO_QID, parse_text, whole_lines
from distdual.data.storage.location import Location
from distdual.errors import InputError


def blocks_from_svmhmm(source: Location, block_bytes: int = BLOCK_BYTES) -> Iterator[Block]:
    """The sequences of a text file, plain or compressed, local or remote."""
    return whole_sequences(read_sequences(source, block_bytes))


def read_sequences(source: Location, block_bytes: int) -> Iterator[TokenRun]:
    names = Names()
    for first_line, text in whole_lines(source, block_bytes):
        parsed = parse_text(text, str(source), first_line)
        refuse = partial(refusal, text, str(source), first_line)
        missing = np.flatnonzero(parsed.qid == NO_QID)
        if len(missing):
            raise refuse(int(missing[0]), "no qid; expected `tag qid:N index:value …`")
        if len(parsed.qid):
            yield TokenRun(Block(parsed.x, parsed.y), names.begins(parsed.qid, refuse))


def refusal(text: bytes, name: str, first_line: int, token: int, why: str) -> InputError:
    """An error that names the line of a token."""
    lines = [k for k, line in enumerate(text.splitlines()) if line.partition(b"#")[0].strip()]
    return InputError(f"{name}, line {first_line + lines[token]}: {why}")
