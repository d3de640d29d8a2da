"""The decisions: pure functions and values that never touch a clock, a socket, a disk or a die."""
