"""Run the command line: the script `doap`, and `python -m doap`."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Import and run the command line; Ctrl-C during the import is one line and exit code 130."""
    # By default, torch's threads wait in a loop and take CPU time from other work.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        from doap.cli import main as run
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted.\n")
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
