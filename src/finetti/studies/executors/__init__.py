"""Where trials run: in this process, in child processes, or on Dask workers."""
