from distdual.data.prepare.api import Options, Summary, prepare, prepare_arrays

__all__ = ["Options", "Summary", "prepare", "prepare_arrays"]
