"""A model of the states of one run: two workers, one charge, and what may go wrong, searched breadth first.

The flow commits rows, charges a card, and ends. `steps` are 0, 1 (rows), 2 (sent), 3 (done). A fault is a crash
anywhere, an exception anywhere, a commit that fails or whose answer is lost, or a lease that ends under a live worker.
`Rules` are what the code keeps to; each of them can be dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

MOST_TAKES = 2  # in the code 5: more show nothing new
IDLE, WORKS, SENDING, SENT, SETTLES, REFUNDING, REFUNDED = (
    "idle",
    "works",
    "sending",
    "sent",
    "settles",
    "refunding",
    "refunded",
)
ENDED = ("succeeded", "failed", "unknown")


@dataclass(frozen=True)
class Rules:
    """What the code keeps to. `keys`: the provider takes keys. `poison`: what always goes wrong, and where."""

    fence: bool = True
    handler: bool = True
    breaks: bool = True
    abandons: bool = True
    row_answers: bool = True
    redrives_any: bool = False
    redrives_abandoned: bool = False
    keys: bool = False
    poison: tuple[str, str] | None = None
    has_key: bool = False  # the caller's call has a key, so that it comes back


@dataclass(frozen=True)
class Worker:
    at: str = IDLE
    has_token: bool = False
    is_call: bool = False
    committed: bool = False


@dataclass(frozen=True)
class Run:
    """The row, the workers and the world outside."""

    state: str = ""
    takes: int = 0
    steps: int = 0
    is_due: bool = False
    cancel: bool = False
    freed: bool = False
    owed: bool = False
    ends: int = 0
    generation: int = 0
    refund: str = ""  # as it is recorded: sent, or done
    payments: int = 0
    refunds: int = 0
    reported: str = ""  # to the caller
    workers: tuple[Worker, Worker] = (Worker(), Worker())
    faults: int = 0

    def with_worker(self, place: int, worker: Worker, **row: object) -> Run:
        workers = (worker, self.workers[1]) if place == 0 else (self.workers[0], worker)
        return replace(self, workers=workers, **row)  # type: ignore[arg-type]


Move = tuple[str, Run]


def moves(run: Run, rules: Rules) -> Iterator[Move]:
    """Yield each next state. The names of faults begin with `!`."""
    if not run.state:
        worker = Worker(WORKS, has_token=True, is_call=True)
        stored = run.with_worker(0, worker, state="running")
        yield "accept", stored
        yield "!accept: its answer is lost", replace(stored.with_worker(0, Worker()), reported="503")
        return
    for place in (0, 1):
        yield from works(run, place, rules)
        if run.is_due and run.workers[place].at == IDLE:
            yield from takes(run, place, rules)
    live = any(worker.at != IDLE and worker.has_token for worker in run.workers)
    if run.state not in ENDED and not run.is_due:
        yield ("!" if live else "") + "the lease ends", replace(run, is_due=True)
    if run.state not in ENDED and not run.cancel:
        yield "!cancel", replace(run, cancel=True)  # counted as a fault, so that it comes seldom
    yield from redrives(run, rules)


def ended(run: Run, state: str, **more: object) -> Run:
    return replace(run, state=state, is_due=False, ends=run.ends + 1, **more)  # type: ignore[arg-type]


def stopped(run: Run) -> Run:
    return replace(run, state="failing", takes=0) if run.steps else ended(run, "failed", freed=True)


def fenced(run: Run) -> Run:
    """Take the token from each worker."""
    one, other = (replace(worker, has_token=False) for worker in run.workers)
    return replace(run, workers=(one, other))


def takes(run: Run, place: int, rules: Rules) -> Iterator[Move]:
    """T2, with T10 to T12."""
    known = run
    if run.state == "failing":
        if rules.breaks and run.takes > MOST_TAKES:
            may = run.steps >= 2 and run.refund != "done"
            yield "break", ended(run, "unknown" if run.steps == 2 else "failed", owed=may)
            return
    elif (
        run.cancel
        or (rules.abandons and not rules.has_key and run.generation == 0 and not run.steps)
        or (rules.breaks and run.takes > MOST_TAKES)
    ):
        known = stopped(run)
    if known.state in ENDED:
        yield "stop", known
        return
    at = SETTLES if known.state == "failing" else WORKS
    takes = min(known.takes + 1, MOST_TAKES + 1)  # bounded, so that the search is
    yield "take", fenced(known).with_worker(place, Worker(at, has_token=True), takes=takes, is_due=False)


def works(run: Run, place: int, rules: Rules) -> Iterator[Move]:
    """The next transaction or effect of a worker, and what may go wrong with it."""
    worker = run.workers[place]
    if worker.at == IDLE:
        return
    idle = Worker(IDLE)
    if rules.poison == ("crash", worker.at):
        yield "crash", run.with_worker(place, idle)
        return
    if rules.poison == ("raise", worker.at):
        yield "raise", fails(run, place, rules)
        return
    yield "!crash", run.with_worker(place, idle)
    yield "!raise", fails(run, place, rules)
    if worker.at == SENDING:
        yield "charge", run.with_worker(place, replace(worker, at=SENT), payments=1 if rules.keys else run.payments + 1)
        return
    if worker.at == REFUNDING:
        yield (
            "refund",
            run.with_worker(place, replace(worker, at=REFUNDED), refunds=1 if rules.keys else run.refunds + 1),
        )
        return
    if rules.fence and (not worker.has_token or run.state in ENDED):
        yield "lease lost", run.with_worker(place, idle)
        return
    after = transaction(run, place, rules)
    yield "commit", after
    lost = answered(after.with_worker(place, idle), replace(worker, committed=True), rules)
    yield "!the answer of a commit is lost", lost


def fails(run: Run, place: int, rules: Rules) -> Run:
    """The handler: T5, in a transaction of its own."""
    worker, idle = run.workers[place], Worker(IDLE)
    gone = answered(run.with_worker(place, idle), worker, rules)
    if not rules.handler or run.state != "running" or (rules.fence and not worker.has_token):
        return gone
    if run.steps == 2 and rules.keys:
        return gone  # the next take asks for the answer
    after = stopped(run)
    if after.state in ENDED:
        return after.with_worker(place, idle, reported=run.reported or "answer")
    return after.with_worker(place, replace(worker, at=SETTLES))


def answered(run: Run, worker: Worker, rules: Rules) -> Run:
    """The answer to a caller whose worker could not write or read the row."""
    if not worker.is_call or run.reported:
        return run
    return replace(run, reported="202" if worker.committed and rules.row_answers else "503")


def transaction(run: Run, place: int, rules: Rules) -> Run:
    worker = run.workers[place]
    idle, wrote = Worker(IDLE), replace(worker, committed=True)
    done = {"reported": run.reported or ("answer" if worker.is_call else "")}
    if worker.at == SENT:  # the outcome is written also for a cancelled run
        return run.with_worker(place, replace(wrote, at=WORKS), steps=3, takes=0, is_due=False)
    if worker.at == REFUNDED:
        return run.with_worker(place, replace(worker, at=SETTLES), refund="done")
    if worker.at == SETTLES:
        if run.steps == 3 and run.refund == "sent" and not rules.keys:
            return ended(run, "failed", owed=True).with_worker(place, idle, **done)
        if run.steps == 3 and run.refund != "done":
            return run.with_worker(place, replace(worker, at=REFUNDING), refund="sent")
        if run.steps == 2:
            state = "failed" if rules.keys else "unknown"
            return ended(run, state, owed=True).with_worker(place, idle, **done)
        return ended(run, "failed").with_worker(place, idle, **done)
    if run.cancel:
        return stopped(run).with_worker(place, replace(worker, at=SETTLES) if run.steps else idle)
    if run.steps == 0:
        return run.with_worker(place, wrote, steps=1, takes=0, is_due=False)
    if run.steps == 1:
        return run.with_worker(place, replace(wrote, at=SENDING), steps=2, is_due=False)
    if run.steps == 2:
        if rules.keys:
            return run.with_worker(place, replace(wrote, at=SENDING), is_due=False)
        return ended(run, "unknown").with_worker(place, idle, **done)
    return ended(run, "succeeded").with_worker(place, idle, **done)


def redrives(run: Run, rules: Rules) -> Iterator[Move]:
    """T13, once. A person finds out whether a charge without an answer happened."""
    if run.state not in {"failed", "unknown"} or run.generation:
        return
    if any(worker.at in {SENDING, REFUNDING} for worker in run.workers):
        return  # a person can only know when nothing is on its way any more
    allowed = run.steps and not run.refund and not run.owed and not (run.state == "failed" and run.steps >= 2)
    abandoned = rules.redrives_abandoned and run.freed
    if not (allowed or abandoned or (rules.redrives_any and run.steps)):
        return
    steps = (3 if run.payments else 1) if run.steps == 2 else run.steps
    steps = 1 if rules.redrives_any and run.refund else steps
    anew = {"generation": 1, "state": "running", "is_due": True, "takes": 0, "cancel": False}
    yield "redrive", replace(fenced(run), **anew, steps=steps, refund="", freed=False, owed=False)  # type: ignore[arg-type]


def broken(run: Run, rules: Rules) -> str:
    """Return the invariant that a state breaks; empty for none."""
    if run.ends != run.generation + (run.state in ENDED):
        return "I1: each generation has one end"
    if run.payments > 1 or run.refunds > 1:
        return "I6: an effect happens once"
    if run.refunds > run.payments:
        return "I7: a refund without a charge"
    if run.state == "succeeded" and (run.payments, run.refunds) != (1, 0):
        return "I7: a success has one charge"
    if run.state == "failed" and run.payments != run.refunds and not run.owed:
        return "I7: a failed run owes a charge"
    if run.reported == "503" and not rules.has_key and run.steps and run.state != "":
        return "I8: a call that was told 503 is done"
    return ""


def search(rules: Rules, faults: int) -> tuple[int, str, int]:
    """Return how many states there are, the first invariant that breaks with its story, and the states that never
    end."""
    first = Run(faults=faults)
    came: dict[Run, tuple[Run | None, str]] = {first: (None, "")}
    sure: dict[Run, list[Run]] = {}
    queue, wrong = deque([first]), ""
    while queue:
        run = queue.popleft()
        why = broken(run, rules)
        if why and not wrong:
            wrong = f"{why}: {' -> '.join(story(came, run))}"
        for name, made in moves(run, rules):
            after = replace(made, faults=run.faults - 1) if name.startswith("!") else made
            if after.faults < 0:
                continue
            if name[0] != "!" and name != "redrive":
                sure.setdefault(after, []).append(run)
            if after not in came:
                came[after] = (run, name)
                queue.append(after)
    reached = {run for run in came if run.state in ENDED}
    hint = deque(reached)
    while hint:
        for before in sure.get(hint.popleft(), ()):
            if before not in reached:
                reached.add(before)
                hint.append(before)
    return len(came), wrong, len(came) - len(reached)


def story(came: dict[Run, tuple[Run | None, str]], run: Run) -> list[str]:
    names = []
    at: Run | None = run
    while at is not None:
        before, name = came[at]
        names.append(name)
        at = before
    return names[-2::-1]
