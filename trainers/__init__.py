"""Training with real models: the loop, the engines, the learner, and work on several processes.

- `contracts`: the interfaces: rollouts, learner, recorder
- `policy`: a loaded model with its tokenizer and end tokens
- `model_folder`: checks a model's folder before it is read
- `prompt_states`: the starting policy's hidden states of a prompt, as a feature of the problem
- `loop`: the training loop: batches, records, checkpoints, evaluation
- `rollouts`: turns requests into scored groups
- `engines`: samplers of tokens: transformers, vLLM here, vLLM servers
- `learner`: turns groups into new weights
- `distributed`: several processes, and the machines they run on
- `hosts`: adapters that run the same chains inside other trainers
- `propel`: training a task generator on a probe's predictions (PROPEL): its domains, its probes
"""
