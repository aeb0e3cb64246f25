"""Tasks that a generator writes: when a text is a valid task, and which problem the solver gets.

- `base`: the contract of a domain, and domains by name
- `candidates`: turns generated texts into problems, or says why they are none
- `oracles`: answers on which models agree, for tasks that come without one
- `diversity`: how much a set of texts repeats itself
- `maths`: competition-style mathematics
- `induction`: infer a function from inputs and outputs; `induction_rules`: what a function may look like;
  `induction_text`: how tasks are written
- `functions`: functions of one small integer, for short function induction, with a flawed author and a teacher
- `sums`: running sums that a generator writes; `sums_writer`: the flawed author whose sheets it learns from
- `sheets`: reading the sheets of both
- `operators`: operator sheets that a generator writes; `operators_writer`: the author whose sheets it learns from
"""
