from .tasks import HiddenRule as HiddenRule
from .tasks import HiddenTask as HiddenTask
from .tasks import make_rule as make_rule
from .learners.base import FitLearner as FitLearner
from .learners.base import NetworkLearner as NetworkLearner
