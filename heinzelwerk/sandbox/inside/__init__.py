"""Scripts that run inside a sandbox, or on its doorstep, with `python -I -S`: standard library only, nothing of ours.

`shim.py` starts the agent and outlives it by nothing; `fence.py` closes Landlock and seccomp around it; `stdio.py` joins
a pipe to a port; `enter.py` is how a worker that is root becomes nobody first.
"""
