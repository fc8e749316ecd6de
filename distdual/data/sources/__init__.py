"""File formats and arrays that examples are read from.

base            sources of examples, and the attachments that a data set keeps of them
open_file       source files, local or remote, opened and decompressed
svmlight        blocks of sparse examples from svmlight (libsvm) text
structures      blocks of structures from Python, .npz files and JSON lines
sequences       blocks of whole sequences from runs of tokens
svmhmm          blocks of sequences from SVM^hmm text
npy             blocks of examples from .npz and .npy files, which are never loaded whole
arrays          blocks of examples from NumPy, scipy.sparse, memory-mapped and Dask arrays
partitions      partitions of Dask arrays and data frames as blocks
templates       feature templates: the TOML file that defines the features of a token
token_features  the features of the tokens of some sentences, as templates define them
vocabulary      feature numbers, from a vocabulary or a hash
conll           blocks of sequences from text in columns
source_files    files named by patterns and folders
arrow           pyarrow, imported on first use
read_ahead      items that a thread makes ahead of whoever takes them
tables          CSV, Parquet and data frames as record batches
spooled         tables of text, parsed once for two passes
table_blocks    blocks of examples from tables, and the first pass over their columns
zarr_arrays     blocks of examples from plain Zarr arrays
"""
