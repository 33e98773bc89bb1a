from .cohort import CheckResult as CheckResult
from .cohort import DivergedError as DivergedError
from .cohort import Member as Member
from .cohort import TrainingRun as TrainingRun
from .cohort import train as train
from .cohort import train_cohort as train_cohort
from .optimizers import adamw as adamw
from .optimizers import matrices as matrices
