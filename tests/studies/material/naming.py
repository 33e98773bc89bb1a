"""A kind whose parameters name code of the user, which it edits while the study runs."""

from pathlib import Path

from pydantic import BaseModel

from finetti.studies import TrialKind
from finetti.studies.source_code import find_source, load_object


class Parameters(BaseModel):
    network: str
    edited: str
    n: int


class Naming(TrialKind):
    Parameters = Parameters

    def resolve(self, params):
        return {**params, "code": find_source(params["network"], ".").fingerprint}

    def named_sources(self, params):
        return (params["network"],)

    def run(self, params, seed):
        network = load_object(find_source(params["network"], "."))
        Path(params["edited"]).write_text("def net(): return 'edited'\n")
        return {"answer": network(), "code": find_source(params["network"], ".").fingerprint}
