"""``python -m tests.slow.replicas_answers [N]``: N (100,000) visits of the news world.

Three replicas serve them as one space, and every answer is held against the library.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.front_page import front_page

if __name__ == "__main__":
    visits = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    with tempfile.TemporaryDirectory() as folder:
        sys.stdout.write(f"{front_page(Path(folder), visits)}\n")
