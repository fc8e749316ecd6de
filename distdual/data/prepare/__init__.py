"""`prepare`: sources become a data set of shards.

open_files    examples of files, read as their problem, the options or their formats ask for
open_sources  the format of each source file, and the reader for it
api         the functions that write a data set from files or arrays
pipeline    the stream of blocks through checks, scaling, split and shuffle into a data set
shuffle     external shuffle: random order for more examples than fit in memory
shard_cuts  chunk lengths, and the examples at which one shard ends and the next begins
destination  the check of the place where a data set is to be written
zarr_arrays  Zarr arrays whose descriptions are written apart from their chunks
writer      the writer of a data set
partition_writer  partitions of a Dask array, written as shards by workers
appender    the writer that appends shards to a data set
"""

from distdual.data.prepare.api import Options, Summary, prepare, prepare_arrays, prepare_structures

__all__ = ["Options", "Summary", "prepare", "prepare_arrays", "prepare_structures"]
