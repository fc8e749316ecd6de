"""Jobs: training runs whose coordinator is a task on the cluster.

job_record        the state of a job, kept by the scheduler
coordinator_task  the task that trains, on any worker
submit            submitting, watching and cancelling jobs
"""
