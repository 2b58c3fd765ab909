"""``python -m tests.slow.fuzz [N]``: N requests (300) of each kind for every operation."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from schemathesis import GenerationMode

from tests import fuzzing
from tests.crashes import Service

if __name__ == "__main__":
    examples = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    sent = 0
    with tempfile.TemporaryDirectory() as folder, Service(Path(folder) / "data") as service:
        service.wait()
        for operation in fuzzing.operations(service):
            for mode in GenerationMode:
                known = fuzzing.prepare(service, operation)
                sent += fuzzing.fuzz(service, operation, mode, examples, known)
                sent += fuzzing.fuzz(service, operation, mode, examples, {})
            sys.stderr.write(f"{operation.label}: {sent} sent so far\n")
        fuzzing.prepare(service)
        assert service.ask("GET", "/healthz") == (200, {"status": "ok"})
        service.stop()
        assert "Traceback" not in "".join(service.said)
    sys.stdout.write(f"{sent} requests: no fault, every answer as the document says.\n")
