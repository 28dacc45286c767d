"""What the tests of components are written with."""
