"""How a CME attention call will be computed, and why."""

from dataclasses import dataclass
from typing import Literal

from finetti.attention.cme.cholesky import Cholesky
from finetti.attention.cme.conjugate_gradients import ConjugateGradients
from finetti.attention.cme.feature_space import Primal
from finetti.attention.cme.float32_factor import Mixed
from finetti.attention.cme.routes import Call, Route
from finetti.core.errors import InputError
from finetti.display.card import Card
from finetti.display.displayable import Displayable

RouteName = Literal["auto", "cholesky", "mixed", "primal", "conjugate_gradients"]
# "auto" takes the first that applies.
ROUTES: dict[str, Route] = {
    route.name: route for route in (Primal(), ConjugateGradients(), Mixed(), Cholesky())
}


@dataclass(frozen=True)
class Plan(Displayable):
    """One route: what is computed, at what cost, and the reason for the choice.

    ``flops`` counts the leading terms per context (conjugate gradients: per iteration),
    ``memory`` the bytes of the largest arrays that exist at once.
    """

    route: str
    is_causal: bool
    per_query: bool
    reason: str
    flops: float
    memory: float

    def __card__(self) -> Card:
        masks = "one solve per query" if self.per_query else "shared by all queries"
        return Card(
            title="Plan of CME attention",
            fields=(
                ("route", self.route + (", causal" if self.is_causal else "")),
                ("masks", masks),
                ("flops", self.flops),
                ("memory (bytes)", self.memory),
            ),
            notes=(self.reason,),
        )


def make_plan(call: Call, name: str) -> Plan:
    """The plan for one call; refuses a route that cannot answer it."""
    if name == "auto":
        fitting = (route for route in ROUTES.values() if not route.refusal(call))
        route = next(route for route in fitting if route.reason(call))
        reason = route.reason(call)
    else:
        route, reason = ROUTES[name], "Asked for by `route`."
        if refusal := route.refusal(call):
            raise InputError(f"The route {name!r} of ConditionalMean {refusal} Use route='auto'.")
    flops, memory = route.cost(call)
    return Plan(route.name, call.is_causal, call.per_query, reason, flops, memory)
