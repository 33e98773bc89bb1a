from .information import InformationBounds as InformationBounds
from .information import binary_entropy as binary_entropy
from .information import information_bounds as information_bounds
from .information import information_per_sample as information_per_sample
from .information import success_bound as success_bound
from .tasks import HiddenRule as HiddenRule
from .tasks import HiddenTask as HiddenTask
from .tasks import make_rule as make_rule
