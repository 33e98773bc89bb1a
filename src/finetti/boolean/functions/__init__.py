"""Boolean functions of few of many bits."""
