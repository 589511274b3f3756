"""The console in the browser: where people read drafts, answer and approve who do not sit at the workers' shell.

Pages are made here, whole, and work without scripts. `app` plugs them together, `visits` knows who asks, `forms` what
may be changed, `pages` how it is shown; `waiting`, `drafts`, `heinzel` and `money` each have their own pages.
"""
