"""What pytest does before it collects: BLAS gets one thread, and some files are not imported."""

import os
import sys

collect_ignore = ["preloaded.py"]  # imported, it compiles: that is for the server of ``forked.py``

# the tests' matrices are small, and workers use all cores: threads of BLAS that wait for each
# other on a busy machine took ten times as long as the work
assert "numpy" not in sys.modules, "BLAS has read how many threads it may have"
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
