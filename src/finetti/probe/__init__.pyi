from .learners.base import FitLearner as FitLearner
from .learners.base import NetworkLearner as NetworkLearner
from .learners.loading import load_learner as load_learner
from .tasks import HiddenRule as HiddenRule
from .tasks import HiddenTask as HiddenTask
from .tasks import make_rule as make_rule
