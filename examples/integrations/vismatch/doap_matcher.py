"""doap for vismatch: copy this file to `vismatch/im_models/doap.py`, or import it from anywhere."""

from vismatch import BaseMatcher

import doap
from doap.pipeline import as_extractor


class DoapMatcher(BaseMatcher):
    """SIFT keypoints with descriptors of doap, matched by mutual nearest neighbours with a ratio test."""

    def __init__(self, device="cpu", max_num_keypoints=2048, descriptor="doap-128", **kwargs):
        super().__init__(device, **kwargs)
        self.max_num_keypoints = max_num_keypoints
        self.extractor = as_extractor(descriptor, device=device)

    def extract_features(self, image):
        """Extract the features of an image (3, H, W) in 0…1, as red, green, blue."""
        pixels = (255 * image.flip(0).clamp(0, 1)).round().byte().permute(1, 2, 0).cpu().numpy()
        return self.extractor.extract(pixels, max_keypoints=self.max_num_keypoints)

    def _forward(self, img0, img1):
        features = self.extract_features(img0), self.extract_features(img1)
        matches = doap.match(*features, ratio=self.extractor.ratio)
        keypoints = [one.keypoints for one in features]
        descriptors = [one.descriptors for one in features]
        return *matches.points(*features), *keypoints, *descriptors, None
