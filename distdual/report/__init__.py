"""What a person sees of a run.

While it goes on: runlog (JSON lines), logs (all that are told), tracking (MLflow, TensorBoard), progress (the terminal,
with forecast), live (a page). What pages and pictures are made of: words, history, charts, latent, page, plots. What is
kept of a run: write.
"""
