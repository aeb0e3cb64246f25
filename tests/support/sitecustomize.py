"""Python imports this at the start of each process that a test starts with `paths.IMPORTABLE`.

If scikit-learn is installed, transformers imports it for a way of decoding that nothing here uses. That is a seventh of
the processor time of a short run. A vLLM server on CPUs has a third process, which imports all of vLLM once more, to
bind its threads to cores. That is a third of its start.
"""

import os
import sys

sys.modules["sklearn"] = None  # type: ignore[assignment]
os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
