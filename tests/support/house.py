"""The house of `heinzelwerk.testing`, by the name that tests know it by."""

from heinzelwerk.testing.house import *  # noqa: F403
