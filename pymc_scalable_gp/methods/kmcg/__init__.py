"""KMCG: kernel machine conjugate gradients."""
