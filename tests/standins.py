"""Stand-ins for software that tests cannot use: Slurm, Kubernetes, Docker.

Each does locally what the documentation needs: Slurm jobs run as processes, and Kubernetes clusters are Dask clusters
of two local workers. What cannot run is at least checked.
"""

from pathlib import Path

BASH = "#!/usr/bin/env bash\nset -euo pipefail\n"

SBATCH = (
    BASH
    + """script=$PWD/job-$$.sh
cp "${@: -1}" "$script"
if [[ $1 == --wait ]]; then
    echo "Submitted batch job $$"
    bash "$script" > "job-$$.out" 2>&1 || { cat "job-$$.out" >&2; exit 1; }
else
    (setsid bash "$script" > "job-$$.out" 2>&1 & echo $! > "job-$$.pid")
    echo "Submitted batch job $$"
fi
"""
)
SCANCEL = BASH + """kill -TERM -- "-$(cat "job-$1.pid")" 2> /dev/null || true\n"""
SRUN = BASH + """while [[ $1 == -* ]]; do shift; done\nexec "$@"\n"""

KUBECTL = """#!/usr/bin/env python
import sys
import yaml

assert sys.argv[1:3] == ["apply", "-f"], sys.argv
for made in yaml.safe_load_all(open(sys.argv[3])):
    assert made["apiVersion"] and made["metadata"]["name"], made
    print(f"{made['kind'].lower()}/{made['metadata']['name']} created")
"""
KUBE_CLUSTER = """from distributed import LocalCluster


class KubeCluster(LocalCluster):
    def __init__(self, name, image, n_workers, env):
        assert all(isinstance(value, str) for value in env.values())
        super().__init__(n_workers=n_workers, threads_per_worker=1, processes=False, dashboard_address=None)
"""
DOCKER = """#!/usr/bin/env python
import sys
from pathlib import Path
import yaml

assert sys.argv[1:3] == ["compose", "up"], sys.argv
services = yaml.safe_load(Path({root!r}, "docker-compose.yml").read_text())["services"]
assert set(services) == {{"s3", "scheduler", "worker", "job"}}, services
"""

PROGRAMS = {
    "slurm": {"sbatch": SBATCH, "scancel": SCANCEL, "srun": SRUN},
    "kubernetes": {"kubectl": KUBECTL},
    "docker": {"docker": DOCKER.format(root=str(Path(__file__).parents[1]))},
}


def stand_ins(needs: set[str], folder: Path) -> Path:
    """A folder for PATH and PYTHONPATH with the stand-ins for `needs`."""
    folder.mkdir()
    for need in needs:
        for name, text in PROGRAMS[need].items():
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
    if "kubernetes" in needs:
        (folder / "dask_kubernetes").mkdir()
        (folder / "dask_kubernetes" / "__init__.py").write_text("")
        (folder / "dask_kubernetes" / "operator.py").write_text(KUBE_CLUSTER)
    return folder
