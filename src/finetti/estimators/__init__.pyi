from .attention_kernel import AttentionKernelRegressor as AttentionKernelRegressor
from .constrained_attention import (
    ConstrainedAttentionClassifier as ConstrainedAttentionClassifier,
)
from .constrained_attention import (
    ConstrainedAttentionRegressor as ConstrainedAttentionRegressor,
)
from .random_feature_attention import (
    RandomFeatureAttentionClassifier as RandomFeatureAttentionClassifier,
)
from .random_feature_attention import (
    RandomFeatureAttentionRegressor as RandomFeatureAttentionRegressor,
)
from .random_feature_mlp import RandomFeatureMLPRegressor as RandomFeatureMLPRegressor
from .ridge import RidgePath as RidgePath
