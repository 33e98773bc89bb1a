from .constrained.constrained_estimators import (
    ConstrainedAttentionClassifier as ConstrainedAttentionClassifier,
)
from .constrained.constrained_estimators import (
    ConstrainedAttentionRegressor as ConstrainedAttentionRegressor,
)
from .criterion_path import CriterionPath as CriterionPath
from .instruments.two_stage import InstrumentalRegressor as InstrumentalRegressor
from .kernel_regression.gp_regression import ConditionalMeanClassifier as ConditionalMeanClassifier
from .kernel_regression.gp_regression import ConditionalMeanRegressor as ConditionalMeanRegressor
from .kernel_regression.nadaraya_watson import KernelSmootherRegressor as KernelSmootherRegressor
from .random_features.head_estimators import (
    RandomFeatureAttentionClassifier as RandomFeatureAttentionClassifier,
)
from .random_features.head_estimators import (
    RandomFeatureAttentionRegressor as RandomFeatureAttentionRegressor,
)
from .random_features.infinite_width import AttentionKernelRegressor as AttentionKernelRegressor
from .random_features.learned_norms import LearnedNorms as LearnedNorms
from .random_features.learning_curves import learn_targets as learn_targets
from .random_features.learning_curves import learning_chart as learning_chart
from .random_features.neuron_estimators import (
    RandomFeatureMLPRegressor as RandomFeatureMLPRegressor,
)
from .sets.token_data import CorrelationPowerTarget as CorrelationPowerTarget
from .sets.token_data import KeyPowerTarget as KeyPowerTarget
from .sets.token_data import TokenTarget as TokenTarget
from .sets.token_data import make_token_regression as make_token_regression
