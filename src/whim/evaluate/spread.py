"""``spread``: runs over one core, all cores or a cluster, with the same results to the last bit.

A task is small and can be pickled: a seed, a path, a policy's bytes. Its data are made or opened
where it runs. Results depend on the task alone, never on the engine or the number of workers.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import signal
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from multiprocessing import resource_tracker
from typing import Any, TypeVar

from whim import checks
from whim.errors import InvalidInputError, WhimError
from whim.evaluate.store import TaskStore, code_digest
from whim.extras import require

Task = TypeVar("Task")
Result = TypeVar("Result")
# results as they come: place of the task, and what its call returned
Outputs = Generator[tuple[int, Any], None, None]

_ENGINES = ("local", "dask", "ray")
_DEATHS = 3  # of workers, with the same task under way: then it is not done again
_PATIENCE = 60  # seconds for a scheduler to answer and for its first worker to come


def spread(
    function: Callable[[Task], Result],
    tasks: Iterable[Task],
    *,
    jobs: int = 1,
    engine: str = "local",
    address: str | None = None,
    progress: Callable[[int], None] | None = None,
    store: TaskStore | str | os.PathLike[str] | None = None,
) -> list[Result]:
    """Call ``function(task)`` for every task; the results in the order of the tasks.

    Parameters
    ----------
    function
        A function of a module that the workers can import.
    tasks
        What to call it with: small things that can be pickled.
    jobs
        Processes of this machine, one thread each; -1 for one per core. 1 runs here, without
        another process. A cluster uses the workers that it has.
    engine
        ``local``: processes, which need the extra ``runs``. ``dask``: the workers of a dask
        scheduler (extra ``cluster``). ``ray``: a ray cluster (extra ``ray``).
    address
        Of the cluster: ``tcp://host:8786`` for dask. Ray looks for its own without one.
    progress
        Called here with the number of tasks done so far, stored ones among them.
    store
        A ``TaskStore`` or its folder: results are kept as they come, and tasks that it has are
        not run again.

    Raises
    ------
    WhimError
        A task was under way each time that a worker died, or a cluster is not there. An error
        in a task comes up as it is, with a note that names the task; workers stop.

    Examples
    --------
    >>> from math import sqrt
    >>> spread(sqrt, [1, 4, 9])
    [1.0, 2.0, 3.0]
    """
    if jobs != -1:
        checks.integer("jobs, unless -1,", jobs, 1)
    checks.choice("engine", engine, _ENGINES)
    if engine == "dask" and address is None:
        raise InvalidInputError("address must be that of a dask scheduler, tcp://…, got None.")
    if engine == "local" and address is not None:
        raise InvalidInputError(f"address must be None for processes here, got {address!r}.")
    if store is not None and not isinstance(store, TaskStore):
        store = TaskStore(store)

    results: list[Any] = list(tasks)
    left = dict(enumerate(results))
    if store is not None:
        for place, task in enumerate(results):
            stored = store.get(function, task)
            if stored is not None:
                results[place] = stored
                del left[place]
    done = len(results) - len(left)
    if progress is not None and done:
        progress(done)
    outputs = _outputs(function, dict(left), jobs, engine, address)
    with _stopping(outputs):
        for place, result in outputs:
            if store is not None:
                result = store.put(function, left[place], result)
            results[place] = result
            done += 1
            if progress is not None:
                progress(done)
    return results


def _outputs(
    function: Callable[[Any], Any],
    left: dict[int, Any],
    jobs: int,
    engine: str,
    address: str | None,
) -> Outputs:
    call = functools.partial(_call, function, code_digest())
    if not left:
        return _here(call, left)
    if engine == "dask":
        return _dask(call, left, str(address))
    if engine == "ray":
        return _ray(call, left, address)
    if jobs == 1 or len(left) == 1:  # needs nothing but numpy and numba
        return _here(call, left)
    joblib = require("joblib", "runs", "Runs over several processes (jobs other than 1) need")
    workers = min(joblib.cpu_count() if jobs == -1 else jobs, len(left))
    return _here(call, left) if workers == 1 else _processes(call, left, workers)


def _call(function: Callable[[Any], Any], code: str, place: int, task: Any) -> tuple[int, Any]:
    """What a worker does for one task."""
    if code != code_digest():
        raise WhimError("workers must run the same version of whim as this process, got another.")
    try:
        with _one_thread():
            return place, function(task)
    except WhimError:
        raise
    except Exception as error:
        error.add_note(f"in task {place}: {task!r:.200}")
        raise


def _one_thread() -> contextlib.AbstractContextManager[Any]:
    """Limits BLAS: a long dot product has other last bits on two threads than on one.

    Without threadpoolctl there are no other processes to agree with: see the extra ``runs``.
    """
    try:
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
    except ImportError:
        return contextlib.nullcontext()
    limits: contextlib.AbstractContextManager[Any] = threadpool_limits(1)
    return limits


@contextlib.contextmanager
def _stopping(outputs: Outputs) -> Iterator[None]:
    """An error here stops the work there (joblib warns when its generators are just closed)."""
    try:
        yield
    except BaseException as error:
        outputs.throw(error)


def _here(call: Callable[..., tuple[int, Any]], left: dict[int, Any]) -> Outputs:
    for place, task in left.items():
        yield call(place, task)


def _processes(call: Callable[..., tuple[int, Any]], left: dict[int, Any], workers: int) -> Outputs:
    """Processes by joblib; when one is killed, those left are ended and new ones go on."""
    import joblib  # type: ignore[import-untyped]
    from joblib.externals.loky.process_executor import (  # type: ignore[import-untyped]
        TerminatedWorkerError,
    )

    # loky replaces a worker that has grown, as compiling makes it: nothing that a user can act on
    warnings.filterwarnings("ignore", "A worker stopped while some jobs", UserWarning)
    deaths: Counter[int] = Counter()
    under_way: set[int] = set()

    def calls() -> Iterator[Any]:
        for place, task in list(left.items()):
            under_way.add(place)
            yield joblib.delayed(call)(place, task)

    while left:
        under_way.clear()
        with joblib.parallel_config(backend="loky", inner_max_num_threads=1):
            # one task at a time: progress is fine-grained, and a killed worker costs little
            pool = joblib.Parallel(
                n_jobs=workers, batch_size=1, pre_dispatch="n_jobs", max_nbytes=None,
                return_as="generator_unordered",
            )  # fmt: skip
        with _interrupts_blocked(), _safe_path():
            outputs = pool(calls())
        try:
            with _stopping(outputs):
                for place, result in outputs:
                    under_way.discard(place)
                    del left[place]
                    yield place, result
        except TerminatedWorkerError as error:
            deaths.update(under_way)
            suspects = [place for place in sorted(under_way) if deaths[place] >= _DEATHS]
            if suspects:
                raise WhimError(_given_up(suspects, left)) from error


@contextlib.contextmanager
def _safe_path() -> Iterator[None]:
    """Processes started within import nothing from the current folder until they know our path.

    A ``random.py`` there would be taken for Python's.
    """
    name = "PYTHONSAFEPATH"
    if name in os.environ:
        yield
        return
    os.environ[name] = "1"
    try:
        yield
    finally:
        del os.environ[name]


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Processes started within are deaf to Ctrl-C, which a terminal sends to all of them.

    The one that was started answers it, and ends the others.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # which unblocks the signal, so it comes first
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _given_up(suspects: list[int], left: dict[int, Any]) -> str:
    named = "; ".join(f"task {place}: {left[place]!r:.200}" for place in suspects)
    return (
        "tasks must leave their worker alive, got worker after worker killed (out of memory?) "
        f"while this was under way: {named}."
    )


def _dask(call: Callable[..., tuple[int, Any]], left: dict[int, Any], address: str) -> Outputs:
    """The workers of a dask scheduler, which runs the tasks of a lost worker again elsewhere.

    Through dask's own futures: joblib's dask backend waits for ever when dask gives a task up
    (the error reaches no callback), and sends tasks in batches that are lost together.
    """
    distributed = require("distributed", "cluster", "Runs on a dask cluster need")
    try:
        client = distributed.Client(address, set_as_default=False, timeout=_PATIENCE)
    except (OSError, ValueError) as error:
        raise WhimError(
            f"address must be that of a dask scheduler, got {address}: {error}"
        ) from error
    with client:
        futures = client.map(call, list(left), list(left.values()), pure=False)
        try:  # after the tasks: a cluster may grow because of them
            client.wait_for_workers(1, timeout=_PATIENCE)
        except TimeoutError:
            raise WhimError(f"the dask scheduler {address} has no worker.") from None
        places = dict(zip((future.key for future in futures), left, strict=True))
        finished = distributed.as_completed(futures, loop=client.loop)
        del futures  # a result leaves the cluster when it has come
        for future in finished:
            try:
                output = future.result()
            except distributed.KilledWorker as error:
                raise WhimError(_given_up([places[future.key]], left)) from error
            except (Exception, asyncio.CancelledError) as error:
                if future.status == "error":  # the task's own
                    raise
                raise WhimError(f"the dask scheduler {address} is gone: {error!r}") from error
            yield output


def _ray(
    call: Callable[..., tuple[int, Any]], left: dict[int, Any], address: str | None
) -> Outputs:
    """Ray by its joblib backend, as its documents say; not tried by whim's tests.

    The backend gives no results before the last: rounds of a few tasks per core, so that progress
    shows and the store fills.
    """
    what = "Runs on a ray cluster need"
    ray = require("ray", "ray", what)
    joblib = require("joblib", "runs", what)
    require("ray.util.joblib", "ray", what).register_ray()
    ray.init(address=address, ignore_reinit_error=True)
    size = 4 * max(1, int(ray.cluster_resources().get("CPU", 1)))
    places = list(left)
    for start in range(0, len(places), size):
        with joblib.parallel_config(backend="ray", n_jobs=-1):
            outputs = joblib.Parallel(batch_size=1)(
                joblib.delayed(call)(place, left[place]) for place in places[start : start + size]
            )
        yield from outputs
