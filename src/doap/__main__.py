"""Run the command line with `python -m doap`."""

from doap.cli import main

if __name__ == "__main__":
    main()
