"""Logs, progress display and reports of a run.

round_log: one line per round, and the costs so far.
run_log: the protocol of a log, and the log file.
tracking: MLflow and TensorBoard.
log_sinks: all logs of a run as one.
number_format: numbers as text.
forecast: pace, and passes left.
price: the cost of reading from storage.
progress: the terminal display.
log_reader: lines of a log file, and the series that charts draw.
svg_charts: line and bar charts.
latent_chart: the objective of a latent problem.
evaluation_chart: scores on another data set.
page, page.css, page.js: the HTML page with charts, costs and certificate.
live, live.js: the same page served during the run.
plots: the charts as PNG.
write_report: the page and the PNG of a finished run.
"""
