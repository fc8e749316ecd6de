"""The feature map of `prepare --map`: rows drawn in one pass over the training part, and the map made of them."""

from distdual.config import KernelConfig
from distdual.data.preprocess.map_text import StoredMap
from distdual.feature_maps.landmarks import Moments, RowDraw, moments_of
from distdual.feature_maps.make_map import LANDMARK_ROWS, MAP_SAMPLE, SAMPLE_ROWS, function_of, map_of, n_drawn
from distdual.feature_maps.quality import quality
from distdual.kernels.rows import Features


class MapDraw:
    """Takes scaled rows; their number and width are known at the end."""

    def __init__(self, kernel: KernelConfig, seed: int) -> None:
        self.kernel, self.seed, self.n_rows = kernel, seed, 0
        self.landmarks = RowDraw(n_drawn(kernel), seed, LANDMARK_ROWS)
        self.sample = RowDraw(MAP_SAMPLE, seed, SAMPLE_ROWS)
        self.sums = Moments()

    def add(self, x: Features) -> None:
        self.n_rows += x.n_rows
        self.landmarks.add(x)
        self.sample.add(x)
        if self.kernel.gamma == "scale":
            self.sums = self.sums.plus(moments_of(x, 0))

    def made(self, n_inputs: int, name: str) -> StoredMap:
        moments = self.sums._replace(n=float(self.n_rows * n_inputs))
        function = function_of(self.kernel, n_inputs, moments, name)
        feature_map = map_of(self.kernel, function, n_inputs, self.landmarks.rows(), self.seed)
        return StoredMap(feature_map, quality(feature_map, self.sample.rows()))
