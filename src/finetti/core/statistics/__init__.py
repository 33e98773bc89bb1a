"""Standard errors, intervals, power laws."""
