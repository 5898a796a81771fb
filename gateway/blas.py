"""Importing this before numpy keeps numpy's matrix products to one thread.

They are small here, and a second thread would wait for a core that the language model never leaves,
and the event loop with it.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
