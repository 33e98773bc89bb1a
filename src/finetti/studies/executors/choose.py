"""The executor that a user asks for, loaded when it is asked for."""

from finetti.core.errors import InputError, bad_argument
from finetti.studies.executors.base import Executor


def choose_executor(
    executor: str | Executor = "local", workers: int | None = None, cluster: str | None = None
) -> Executor:
    """The executor that the arguments of ``Study.run`` ask for."""
    if workers is not None and cluster is not None:
        raise InputError("`workers` starts Dask here, `cluster` uses one elsewhere. Give one.")
    if workers is not None or cluster is not None:
        if executor not in ("local", "dask"):
            raise InputError("`workers` and `cluster` mean Dask. Leave `executor` out.")
        from finetti.studies.executors.dask import DaskExecutor

        return DaskExecutor(workers, cluster)
    if isinstance(executor, Executor):
        return executor
    if executor == "inline":
        from finetti.studies.executors.inline import InlineExecutor

        return InlineExecutor()
    if executor == "local":
        from finetti.studies.executors.local import LocalExecutor

        return LocalExecutor()
    raise bad_argument("executor", "Study.run", "local, inline or an Executor", executor)
