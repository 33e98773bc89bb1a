from .learners.base import FitLearner as FitLearner
from .learners.base import NetworkLearner as NetworkLearner
