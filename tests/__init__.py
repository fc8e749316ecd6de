"""Tests mirror distdual/ file for file. naive.py has a simple reference version of everything, build.py makes data."""
