"""Write the data of `distdual quickstart` as an .npz file, to try `distdual prepare` on.

python jobs/digits.py digits.npz
"""

import sys

import numpy as np

from distdual.quickstart import digits

if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    x, y = digits()
    np.savez(sys.argv[1], x=x, y=y)
