"""Halfway steers reinforcement learning with verifiable rewards toward the rollouts that teach.

| room | what is in it | may import |
|---|---|---|
| `halfway.curriculum` | the vocabulary, the contract of a controller, the session; problems, environments, domains | |
| `halfway.controllers` | one file per method; their beliefs, laws and prefixes | curriculum |
| `halfway.trainers` | the loop, the rollouts and their engines, the learner, several processes; probes, PROPEL | the
above |
| `halfway.experiments` | configuration, command line, comparison, report, studies, recipes | the above |
"""
