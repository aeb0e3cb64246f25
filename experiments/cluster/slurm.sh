#!/bin/bash
# sbatch --nodes 4 experiments/cluster/slurm.sh experiments/cluster/two_pools.yaml [field=value ...]
# Nodes: cluster.train_nodes + cluster.rollout_nodes of the file. Submitted again, it goes on at the last checkpoint.
#SBATCH --job-name=halfway
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --exclusive
#SBATCH --requeue
set -euo pipefail
file=$1
shift
nodes=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | paste -sd,)
exec halfway launch "$file" "$@" --nodes "$nodes" --through srun
