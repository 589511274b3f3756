"""Scripts that run inside a sandbox, or on its doorstep, with `python -I -S`: standard library only, nothing of ours.

`shim.py` starts the agent and leaves nothing behind; `forward.py` is its way to the model; `fence.py` closes Landlock and
seccomp around the agent; `stdio.py` joins a pipe to a port; `enter.py` is how a worker that is root becomes nobody first.
"""
