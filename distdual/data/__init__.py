"""Data sets: sources, `prepare`, and the shards that training reads.

storage/         files and objects, local or remote
shard            examples in memory
sources/         file formats and arrays that examples are read from
data_spec        the declaration of what a problem's data sets are made of
prepare_options  options of `prepare` that hold for every source
validate         checks of blocks of examples before they are stored
layout           the layout of a stored data set: its arrays, and the shape of chunk s of each
layout_schema    the form of the attributes and tables of a data set
zarr_store       Zarr stores in which missing chunks are errors
zarr_description  the Zarr metadata of a data set, read and checked
shard_arrays     the arrays of a shard, their lengths and checksum
shard_checks     checks of shards that are read
training_data    the contract of data sets that training reads
structures       examples made of named arrays, and the columns that store them
dataset          stored data sets: opening one, and reading its shards
in_memory        data sets in memory, which training reads like stored ones
preprocess/      what `prepare` does to raw features, stored with data sets and models
prediction_files  files of predictions, written as they come
prepare/         `prepare`: sources become a data set of shards
"""
