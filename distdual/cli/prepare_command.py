"""The command `prepare`."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from distdual.cli.completion import complete_kind, complete_path
from distdual.cli.data_options import array_options, table_options
from distdual.cli.options import (
    find_module,
    json_option,
    print_json,
    stderr,
    stdout,
    storage_option,
    storage_options,
)
from distdual.report.number_format import counted


@click.command(short_help="Convert files to a data set of shards.")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...", shell_complete=complete_path)
@click.argument("dest", shell_complete=complete_path)
@click.option(
    "--problem",
    "kind",
    required=True,
    shell_complete=complete_kind,
    help="The problem to learn: a built-in problem.kind, such as binary, MODULE:CLASS, or structures.",
)
@click.option(
    "--format",
    "source_format",
    help="csv, parquet, svmlight, svmhmm, conll, npz, npy, zarr, jsonl or brackets; default: guessed.",
)
@click.option("--like", metavar="URL", help="Make and scale features as those of this data set or model.")
@click.option("--unlabelled", is_flag=True, help="Rows to predict on a cluster; leaves labels out.")
@table_options
@click.option("--labels", multiple=True, metavar="FILE", help="The .npy labels of each .npy SOURCE, in order.")
@array_options
@click.option("--templates", metavar="FILE.toml", help="Conll: feature templates, see configs/chunking_templates.toml.")
@click.option("--vocabulary", metavar="URL", help="Conll: use the features and tags of this data set instead.")
@click.option("--shard-bytes", type=int, show_default="16 MiB", help="Largest size of a shard's features.")
@click.option("--shuffle", type=int, metavar="SEED", help="Shuffle the examples.")
@click.option("--test-fraction", default=0.0, metavar="F", help="Split: write DEST/train and DEST/test.")
@click.option("--scale", default="none", help="none, unit-variance or unit-rows.", show_default=True)
@click.option("--map", metavar="FILE.toml", help="Map features once, as the section [kernel] of FILE.toml says.")
@click.option("--n-features", type=int, help="Number of features of sparse data; default: the largest index.")
@click.option("--compress/--no-compress", default=None, help="Default: compress sparse data only.")
@click.option("--overwrite", is_flag=True, help="Replace an existing data set.")
@click.option("--append", is_flag=True, help="Add shards to an existing data set with the same features and labels.")
@click.option("--max-length", type=int, metavar="N", help="Trees: skip sentences of more than N words.")
@click.option("--grammar", metavar="URL", help="Trees: use the grammar and vocabulary of this data set.")
@click.option("--binarise", metavar="SIDE", help="Trees: binarise to the right (the default) or left.")
@click.option("--markov-order", metavar="N", help="Trees: sibling labels kept in binarised symbols; default 2, or all.")
@click.option("--min-count", type=int, metavar="N", help="Trees: map rarer words to their shape; default 2.")
@click.option("--function-tags", is_flag=True, default=None, help="Trees: keep NP-SBJ instead of shortening it to NP.")
@click.option("--traces", is_flag=True, default=None, help="Trees: keep traces (-NONE-) instead of removing them.")
@storage_option
@json_option
def prepare(
    sources: tuple[str, ...],
    dest: str,
    kind: str,
    source_format: str | None,
    storage_file: Path | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Convert SOURCE files to a data set of Zarr shards at DEST, a local folder or s3://.

    \b
    Example:
      distdual prepare a9a.xz s3://bucket/a9a --problem binary --shuffle 0
    """
    from distdual.data.prepare.api import prepare as run
    from distdual.report.compile_notice import compiling_shown

    find_module(kind)
    storage = storage_options(storage_file)
    with compiling_shown(stderr):
        written = run(list(sources), dest, kind, format=source_format, storage_options=storage, **options)
    if as_json:
        print_json({"datasets": [asdict(summary) for summary in written]})
    for summary in () if as_json else written:
        stdout.print(
            f"{summary.url}: {counted(summary.n_examples, 'example')}, {counted(summary.n_features, 'feature')}, "
            f"{counted(summary.n_shards, 'shard')}{', labels ' * bool(summary.labels)}{', '.join(summary.labels)}"
        )
    return 0
