"""`python -m ptrun` is the `ptrun` command."""

from ptrun.cli import main

if __name__ == "__main__":
    main()
