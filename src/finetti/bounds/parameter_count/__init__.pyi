from .network import ParameterCountCovering as ParameterCountCovering
from .network import ParameterCountGap as ParameterCountGap
