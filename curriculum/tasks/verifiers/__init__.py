"""Verifiers, which judge responses.

- `verify`: verifiers by name, and their verdicts
- `exact_numeric`: the contract of a verifier; the verifiers `exact` and `numeric`
- `symbolic`: the verifier `symbolic`, by math-verify
- `numbers`: reads numbers from text and LaTeX, and finds the final answer of a response
- `words`: words, letters of options and units, which algebra would read as products
- `function_induction`: the verifier that runs a function on hidden inputs
- `task_rewards`: the verifier `taskset`, which computes the rewards of a task set
- `reference_trials`: tries a verifier on the references of a data set
- `helpers`: processes that judge, limited in time and memory
- `helper_process`: one of these processes
"""
