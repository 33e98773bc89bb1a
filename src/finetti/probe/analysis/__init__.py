"""From a table of trials to success curves, critical sample sizes and scaling laws."""
