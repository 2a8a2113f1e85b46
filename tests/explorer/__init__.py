"""The explorer: real kernels and comms, real sessions where a test needs one."""
