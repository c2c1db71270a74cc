"""The page of the arithmetic, implemented a second time: literal, slow and obvious, to be held beside the first."""
