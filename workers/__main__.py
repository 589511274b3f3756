"""`python -m workers`: the command line, for processes that the supervisor starts."""

from workers.cli import main

if __name__ == "__main__":
    main()
