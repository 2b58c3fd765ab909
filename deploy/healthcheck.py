"""Docker's health check: healthy is what is ready.

Docker restarts what has ended and not what is unhealthy. So a service that has failed for good (its
/healthz says 503, for example because a failover lost rows that it had) is ended here, and the
restart policy begins it anew.
"""

from __future__ import annotations

import os
import signal
import sys
import urllib.error
import urllib.request


def status(port: int, path: str) -> int | None:
    """The status of an answer; None if there is none."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=4) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


def main(port: int, pid: int) -> int:
    """0: ready; 1: not. What has failed for good is told to end."""
    if status(port, "/healthz") == 503:
        os.kill(pid, signal.SIGTERM)
        return 1
    return 0 if status(port, "/readyz") == 200 else 1


if __name__ == "__main__":
    # in a container the service is process 1
    sys.exit(main(int(os.environ["WHIM_PORT"]), int(sys.argv[1]) if len(sys.argv) > 1 else 1))
