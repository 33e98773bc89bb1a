"""Where trials run: in this process, in a child process, or on Dask workers."""
