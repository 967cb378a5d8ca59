"""`python -m doap` is the command line."""

from doap.cli import main

if __name__ == "__main__":
    main()
