"""Files and objects in memory as named tensors, read when asked for; nothing is unpickled."""
