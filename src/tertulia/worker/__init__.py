"""The worker: claims turns and answers them; it serves no client and keeps no state of its own."""
