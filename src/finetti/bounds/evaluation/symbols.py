"""The letters of statements: one meaning each, whatever a paper calls it."""

import re

# What a letter stands for, and the option or the norm (of --norms) that gives it, if one does.
SYMBOLS = {
    "T": ("tokens per sequence", "--context-length"),
    "L": ("layers", "--layers"),
    "H": ("heads per layer", "--heads"),
    "n": ("sequences in the sample", "--samples"),
    "d": ("dimension of a token", "--width"),
    "d_k": ("dimension of a head", "--head-dimension"),
    "d_out": ("outputs of a linear map", "--width"),
    "D": ("the largest of d, d_k and the hidden dimension", ""),
    "P": ("number of parameters", ""),
    "ε": ("resolution of a covering number", "--resolution"),
    "δ": ("probability with which a bound may fail", "--delta"),
    "b": ("range of the loss", "--loss-bound"),
    "ℓ": ("the loss", ""),
    "B_X": ("length of the longest token", "--input-norm"),
    "B_w": ("length of the readout", "readout_norm"),
    "B_col": ("length of the longest column of W", "weight_norm"),
    "B_sum": ("sum of the lengths of the columns of W", "weight_norm"),
    "B_W": ("spectral norm of a matrix", "weight_norm"),
    "B_1": ("sum of the absolute entries of a matrix", "entry_norm"),
    "B_S": ("Schatten norm of a matrix, of a given `power`", "schatten_norm"),
    "R": ("radius of a ball that holds all parameters", ""),
    "Λ": ("how far the output moves per unit of all parameters", "lipschitz"),
    "L_act": ("Lipschitz constant of the activation", "activation_lipschitz"),
    "C_2": ("largest spectral norm of all matrices", "spectral_norm"),
    "C_∞": ("largest column or row of all matrices", "column_norm"),
    "C_N": ("bounds ε² log N_∞ for every ε", "covering_constant"),
    "N_∞": ("covering number of the functions, at resolution ε on all points", ""),
    "N": ("covering number of a ball of matrices, at resolution ε", ""),
    "Rad": ("Rademacher complexity of the loss", ""),
    "Δ": ("how far the output moves if every matrix moves by its mixed norm", ""),
    "σ": ("bandwidth of the RBF scores, whose square is given", "bandwidth"),
    "γ": ("how much a layer lengthens tokens", ""),
    "ζ": ("how sharp the scores of a layer are", ""),
    "κ": ("how large the mixed norms of a layer are", ""),
    "λ": ("ridge per token", "ridge"),
    "Γ": ("effective dimension of the keys at this ridge", "effective_dimension"),
    "K": ("the kernel", ""),
    "C_K": ("covariance operator of the keys", ""),
    "h": ("the source of the conditional mean", "source_norm"),
    "q": ("a query", ""),
    "k": ("a key", ""),
    "v": ("a value", ""),
    "x": ("a token", ""),
    "y": ("what is to be predicted", ""),
    "W": ("weights of a linear map", ""),
    "E": ("mean over the distribution", ""),
    "Ê": ("mean over the sample", ""),
    "O": ("up to a constant", ""),
    "E_gen": ("generalization error", ""),
    "E_approx": ("approximation error", ""),
    "E_pre": ("excess risk of the pretrained network", "pretraining_excess"),
    "ε_g": ("error of the latent-to-target function", "latent_error"),
    "ε_attn": ("error of the attention for the surrogate", "attention_error"),
    "ε_agg": ("error of the aggregation", "aggregation_error"),
    "ε_SSL": ("error of the pretraining target", "transfer_error"),
    "μ": ("condition number of the transfer", "condition_number"),
    "f": ("a function of the class", ""),
    "f*": ("the target", "target"),
    "f̂": ("the trained function", ""),
    "f_rs": ("part of the target of degree r in the query and s in a key", ""),
    "r": ("degree in the query", ""),
    "s": ("degree in a key", ""),
    "p": ("degree of the target", "degree"),
    "κ_rs": ("coefficient of the kernel of random heads", ""),
    "ν_rs": ("coefficient of the kernel of a random network", ""),
    "B_RFA": ("squared norm of the target for random heads", "squared_norm"),
    "B_BRFA": ("squared norm of the target for biased random heads", ""),
    "B_MLP": ("squared norm of the target for a random network", ""),
    "F": ("function of the correlations", "coefficients"),
    "β": ("vector that the target reads keys with", "target_norm"),
    "G_j": ("Hermite coefficients of F and a series cut after J terms", ""),
    "j": ("index of a series", ""),
    "J": ("terms that are kept of a series", "terms"),
    "ε_J": ("what cutting after J terms costs", ""),
    "W_0": ("mean of the heads", ""),
    "S": ("mean of the heads between query and keys", "mean_norm"),
    "D_f": ("nats that describe the predictor", "bits"),
    "D_KL": ("relative entropy of the drawn weights to the prior", "distance"),
    "V": ("mean square of the losses around their predictions", "variance"),
    "η": ("rate of a supermartingale", ""),
}
# Names in code, theorems and words of two or more letters; else a letter, its accent and its index.
_WORD = r"`[^`]*`|[A-Z]\.\d+|[A-Za-z]{2,}(?![A-Za-z_])"
_SYMBOL = r"[A-Za-zα-ωΓΔΛℓÊ][\u0302\u0303*]?(?:_(?:[A-Za-z]+|[0-9∞]))?"


def symbols_in(text: str) -> list[str]:
    """The symbols of a statement, in order; two or more letters in a row are a word.

    >>> symbols_in("Rad of a head ≤ 36(d_k·B_X/ε)²·log(n·T), Theorem C.4")
    ['Rad', 'd_k', 'B_X', 'ε', 'n', 'T']
    """
    found = re.finditer(f"(?P<word>{_WORD})|{_SYMBOL}", text)
    symbols = (each[0] for each in found if each[0] in SYMBOLS or not each["word"])
    return [symbol for symbol in dict.fromkeys(symbols) if symbol != "a"]  # the article


def explain_symbols(text: str) -> dict[str, str]:
    """Each symbol of a statement with its meaning, and the argument that gives it."""
    explained = {}
    for symbol in symbols_in(text):
        meaning, argument = SYMBOLS[symbol]
        explained[symbol] = f"{meaning} ({argument})" if argument else meaning
    return explained
