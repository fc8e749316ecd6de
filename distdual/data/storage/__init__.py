"""Files and objects, local or remote.

location    paths and URLs of folders, and reads and writes of the files in them
conditional writes that depend on what is there
claim       claims on a folder, so that one process at a time writes there
object_get  reads of one object's bytes straight into memory
npy_io      reads of .npy arrays: one thread at a time, and never with pickle
chunks      reads of chunk s of every array
joined_crc  the checksum of a shard from those of its arrays
"""
