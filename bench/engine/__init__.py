"""The embedded engine beside llama-server: the same files, threads and requests, in one run."""
