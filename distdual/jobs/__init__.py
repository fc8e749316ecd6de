"""Runs whose coordinator is a task on the cluster: record (what is known of one), coordinate (the task), submit."""
