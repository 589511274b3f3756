"""The command `heinzelwerk`: one small module for each group of commands."""

from workers.cli.entry import main

__all__ = ["main"]
