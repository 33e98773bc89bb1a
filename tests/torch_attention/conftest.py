"""Workers run side by side; threads of their own would only wait for each other."""

try:
    import torch
except ImportError:  # each file skips itself
    pass
else:
    torch.set_num_threads(1)
