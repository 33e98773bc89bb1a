"""Learners that are nothing but a success curve, for searches through a real store."""

import math
import os
import random


def known(seed, context_length, n_samples, slope=14.0, ceiling=1.0):
    """Success with probability c·σ(b·log(m/m*)) where m* = 30·log T."""
    odds = slope * math.log(n_samples / (30 * math.log(context_length)))
    success = random.Random(seed).random() < ceiling / (1 + math.exp(-odds))
    return {"success": success, "process": os.getpid()}


def broken(seed, context_length, n_samples):
    """A learner that cannot learn."""
    raise ArithmeticError("no memory of anything")


def silent(seed, context_length, n_samples):
    """A kind that forgot to say how it went."""
    return {"accuracy": 0.7}
