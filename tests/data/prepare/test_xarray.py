"""xarray opens a data set: arrays along the same axis share a dimension."""

from typing import Any

import numpy as np
import pytest
import xarray

from distdual.data.prepare.appender import Appender
from distdual.data.prepare.writer import write_dataset
from distdual.data.storage.location import Location
from tests.data.prepare.test_writer import csr_block, dense_block


@pytest.mark.parametrize("block_of", [dense_block, csr_block], ids=["dense", "csr"])
def test_a_data_set_opens(tmp_path: Any, block_of: Any) -> None:
    location = Location(str(tmp_path / "set"))
    write_dataset(location, "binary", [block_of(cost=np.ones(8))], shard_bytes=100)
    with Appender(location, "binary") as appender:
        appender.append(block_of(cost=np.ones(8)))
        appender.finish()
    found = xarray.open_zarr(tmp_path / "set")
    rows = found["lengths"].sizes["shard"]
    assert rows > 1
    assert found["y"].dims == found["cost"].dims == ("example",)
    assert found["lengths"].dims == ("shard", "axis")
    expected = {"x": ("example", "feature")} if block_of is dense_block else {"indptr": ("example_bound",)}
    for name, dims in expected.items():
        assert found[name].dims == dims
