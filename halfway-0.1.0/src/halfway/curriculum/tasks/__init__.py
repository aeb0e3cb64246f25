"""Sources of problems, and verifiers of responses.

- `sources`: the contract of a source; the split into training and held-out problems
- `files`: problems from data files
- `hub`: problems of a data set on the Hugging Face hub, or in its local cache
- `data_files`: rows of JSON Lines, JSON, CSV or Parquet, packed or not, one file or many
- `layouts`: columns of widespread data sets
- `answer_checks`: checks a file's answers with their verifiers, and caches the results
- `reasoning_gym`: the families of reasoning-gym, source and verifier
- `tasksets`: tasks of a task set of the package verifiers
- `task_rewards`: the verifier that computes their rewards
- `lab`: the small tasks on which whole runs take minutes
- `verifiers`: verifiers by name, and their verdicts
- `answers`: the contract of a verifier; comparison of texts and numbers
- `numbers`: reads numbers from text and LaTeX, and finds the final answer of a response
- `words`: words, letters of options and units, which algebra would read as products
- `expressions`: the verifier `symbolic`, by math-verify
- `trials`: tries a verifier on the references of a data set
- `helpers`: processes for such comparisons, limited in time and memory
- `helper_process`: one of these processes
- `function_induction`: the verifier that runs a function on hidden inputs
"""
