"""What a person sees of a run: runlog (JSON lines), progress (the terminal)."""
