"""Contracts: reading one file, checking a set of them, the graph between them.

`read` and `check_set` are pure; `directory` is the one module here that touches a disk.
"""

from heinzelwerk.contract.definition import AgentSpec, Contract, InputSpec, OutputSpec, PublishSpec
from heinzelwerk.contract.diagnostic import CODES, Diagnostic, Severity
from heinzelwerk.contract.graph import Graph
from heinzelwerk.contract.reader import SUFFIX, Reading, read, reread
from heinzelwerk.contract.sets import Installed, SetReport, check_set
from heinzelwerk.contract.starter import template

__all__ = [
    "CODES",
    "SUFFIX",
    "AgentSpec",
    "Contract",
    "Diagnostic",
    "Graph",
    "InputSpec",
    "Installed",
    "OutputSpec",
    "PublishSpec",
    "Reading",
    "SetReport",
    "Severity",
    "check_set",
    "read",
    "reread",
    "template",
]
