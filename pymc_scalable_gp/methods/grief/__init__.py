"""GP-GRIEF: grid-structured eigenfunctions."""
