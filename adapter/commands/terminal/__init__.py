"""The command line's parts that know nothing of the field: commands, what they print, and how."""
