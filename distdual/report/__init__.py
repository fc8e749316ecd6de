"""What a person sees of a run: runlog (JSON lines), progress (the terminal), the report (history to write)."""
