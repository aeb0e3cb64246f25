"""Python imports this at the start of each process that a test starts with `paths.IMPORTABLE`.

If scikit-learn is installed, transformers imports it for a way of decoding that nothing here uses. That is a seventh of
the processor time of a short run.
"""

import sys

sys.modules["sklearn"] = None  # type: ignore[assignment]
