"""Linear and structural SVMs on data larger than one machine, with a certificate of optimality."""
