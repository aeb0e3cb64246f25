"""Tasks that a generator writes: when a text is a valid task, and which problem a solver gets.

- `base`: the contract of a domain, and domains by name
- `candidates`: from generated texts to problems, or to why they are none
- `oracles`: answers by agreement of models, for tasks that come without
- `diversity`: how much a set of texts repeats itself
- `maths`: competition-style mathematics
- `induction`: infer a function from inputs and outputs; `induction_rules`: what a function may look like;
  `induction_text`: how tasks are written
- `sandbox`: runs programs that nobody has read; `sandbox_worker`: the process inside
"""
