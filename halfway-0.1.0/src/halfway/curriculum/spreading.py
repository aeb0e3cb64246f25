"""Divides requests among processes."""

from collections.abc import Sequence

from halfway.curriculum.groups import Request


def spread(requests: Sequence[Request], num_processes: int) -> list[list[int]]:
    """Assign requests to processes, by index, with about equally many rollouts each.

    Requests with the same problem and origin stay together, in order: the random stream of a request counts those
    before it. So the outcome is the same on any number of processes.
    """
    bundles: dict[tuple[str, str], list[int]] = {}
    for i, request in enumerate(requests):
        bundles.setdefault((request.problem.id, request.origin.value), []).append(i)
    shares: list[list[int]] = [[] for _ in range(num_processes)]
    loads = [0] * num_processes
    for bundle in sorted(bundles.values(), key=lambda bundle: -sum(requests[i].num_rollouts for i in bundle)):
        process = loads.index(min(loads))
        shares[process] += bundle
        loads[process] += sum(requests[i].num_rollouts for i in bundle)
    return [sorted(share) for share in shares]
