"""The rules of changesets (document 004 section 12.4, and section 6.4 of its sister document), each with its status."""

from __future__ import annotations

CHANGESET_RULES = {
    "004-12.4-1": "the bundle is changed by changesets only: as written; the runtime alone writes the branch, and no tool writes an active revision; decided: that needs a user of their own for agents, or `isolation: process`",
    "004-12.4-2": "a model opens a staging workdir, edits files by bash, and commits: as written; decided: the names are `swarmBundle__openChangeset` and `swarmBundle__commitChangeset`; other tools may edit the files, too",
    "004-12.4-3": "the history is git's, without status and log files: as written; git's list of locked worktrees says which changesets are open",
    "004-12.4-4": "ok, rejected or failed is seen in the tool's result: as written; decided: an id that is not open is the error `E_CHANGESET`; `rejected` names files with reasons, `problems` those of the bundle",
    "004-12.4-5": "activation at the safe point only: as written, at `step.config` of the next step of each turn; decided: another process takes that step; a revision that does not start is left again",
    "004-6.4-1": "a git worktree for each changeset, below the system root: as written; decided: without a `.git` file, so that an agent's git does not write to the repository",
    "004-6.4-2": "the members of both answers: as written; decided: a summary has lists of paths, references are `git:<id>`, `newRef` is null without a revision, `hint` has `bundleRootInWorkdir` and `allowedFiles`",
    "004-6.4-3": "allow lists of Swarm and Agent, both: as written; decided: patterns work as in `.gitignore`, and an empty list allows nothing",
    "004-6.4-4": "a base that has moved: decided: other files are put on the newest revision, files changed twice are rejected",
}
