from .limits import NormLimits as NormLimits
from .networks import AttentionNetwork as AttentionNetwork
