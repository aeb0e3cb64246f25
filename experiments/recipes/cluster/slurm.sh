#!/bin/bash
# sbatch --nodes 4 experiments/recipes/cluster/slurm.sh experiments/recipes/cluster/two_pools.yaml [field=value ...]
# Nodes: cluster.train_nodes + cluster.rollout_nodes of the file. Submitted again, on any nodes, it goes on at the last
# checkpoint. HALFWAY_ENVIRONMENT: folder of the virtual environment, .venv here if not given. Every node needs the same
# environment at the same path, best on a disk that all share, and the current folder with `output` likewise.
# Checked by dry runs; never run under Slurm by us yet.
#SBATCH --job-name=halfway
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --exclusive
#SBATCH --requeue
set -euo pipefail
environment=${HALFWAY_ENVIRONMENT:-$PWD/.venv}
if [[ ! -x $environment/bin/halfway ]]; then
    echo "error: HALFWAY_ENVIRONMENT: '$environment' has no bin/halfway; give the virtual environment's folder" >&2
    exit 2
fi
export PATH="$environment/bin:$PATH"
file=$1
shift
nodes=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | paste -sd,)
exec "$environment/bin/halfway" launch "$file" "$@" --nodes "$nodes" --through srun
