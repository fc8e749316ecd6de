"""The crc32c of parts in a row is that of all their bytes."""

import google_crc32c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdual.data.storage.chunks import SURVEY_BYTES, surveyed
from distdual.data.storage.joined_crc import joined_crc


def crc(content: bytes) -> int:
    return google_crc32c.extend(0, content)


@given(st.lists(st.binary(max_size=40), max_size=5))
def test_parts_give_the_checksum_of_the_whole(parts):
    assert joined_crc((crc(part), len(part)) for part in parts) == crc(b"".join(parts))


def test_a_long_part_is_shifted_by_all_its_bytes():
    parts = [bytes(5), np.random.default_rng(0).bytes(3_000_001), b"end"]
    assert joined_crc((crc(part), len(part)) for part in parts) == crc(b"".join(parts))


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("extra", [-1, 0, 1, 7])
def test_columns_are_surveyed_across_the_ends_of_blocks(dtype, extra):
    per_block = SURVEY_BYTES // np.dtype(dtype).itemsize
    values = np.arange(2 * per_block + extra, dtype=dtype)
    assert surveyed(values, columns=True) == (crc(values.tobytes()), 0)
    values[[5, per_block - 1, per_block, -1]] = 0
    falls = int((np.diff(values) <= 0).sum())
    assert surveyed(values, columns=True) == (crc(values.tobytes()), falls)
    assert surveyed(values, columns=False) == (crc(values.tobytes()), 0)


def test_no_values_have_no_checksum():
    assert surveyed(np.empty(0, dtype=np.int32), columns=True) == (0, 0)
