"""The lab: two tasks small enough that real reinforcement learning on them takes minutes on two cores."""
