"""CholQR: inducing points chosen among the data."""
