"""Other libraries side by side with whim: each in an environment of its own, in turns."""
