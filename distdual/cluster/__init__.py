"""Where scans run: threads of this process, or workers of a Dask cluster.

base              the Executor contract, and bookkeeping of pending scans
resources         the memory of scanning processes, and whether shards stay in it
threads           the executor that scans in threads of this process
dask_client       connecting to a scheduler, or starting a local cluster
user_code         the code of a user's own problem on its way to workers
user_code_plugin  the Dask plugin that puts it on a worker's path
same_sources      the comparison of distdual's own sources with those of workers
process_priority  lower priority for the workers of a local cluster
liveness          deciding when a worker hangs and when a cluster is lost; pure
dask_monitor      polling the scheduler for its workers
dask_worker       the part of a task that runs on a worker
collection        Dask arrays and data frames as a data set, scanned where their partitions are
dask_tasks        grouping scans into tasks, and tasks into messages; pure
dask_executor     the executor that scans on Dask workers, and recovers from their failures
open_executor     the factory: the executor that a configuration describes
"""
