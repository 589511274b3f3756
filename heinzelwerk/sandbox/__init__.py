"""Where processes are started: coding agents in a sandbox, and git.

The face for runners, besides the values of `spec`:

- `await choose.choose_backend(root=..., account=..., unsafe=...) -> Backend | Refusal`, once at start
- `async with run.place(backend, root=..., run_id=...) as place:` gives `place.layout`, for arguments and configuration
- `await run.run(spec, place, on_line=..., stop=..., now=...) -> SandboxResult`, once for each place
- `await run.clear_leftovers(root)` when a worker starts
"""
