"""SoftKI: soft kernel interpolation from learned points."""
