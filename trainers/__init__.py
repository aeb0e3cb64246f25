"""Training with real models: the loop, the engines it samples from, the learner, and work on several processes.

- `contracts`: the interfaces: rollouts, learner, recorder
- `policy`: a model with its tokenizer and end tokens, as it is loaded
- `model_folder`: checks a model's folder before it is read
- `prompt_states`: what the starting policy makes of a prompt, as a feature of the problem
- `loop`: the training loop: batches, records, checkpoints, evaluation
- `rollouts`: turns requests into scored groups
- `engines`: what samples tokens: transformers, vLLM here, vLLM servers
- `learner`: turns groups into new weights
- `distributed`: several processes, and the machines they run on
- `hosts`: adapters that run the same chains inside other projects' trainers
- `propel`: training a task generator on a probe's guess (PROPEL): its domains, its probes
"""
