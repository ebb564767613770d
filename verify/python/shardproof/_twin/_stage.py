"""What the twin has to say of one observed stage."""


class Stage:
    """What comes of one. why_not: why it is inconclusive; left_out: why something is not judged."""

    def __init__(self, key, left_out=""):
        self.key, self.left_out, self.why_not = key, left_out, ""
        self.compared = self.exact = 0
        self.deviations = []
        self.adds_otherwise = False  # see _whole_job.hold_order
        self.averages = []  # frozen parameters that follow trainable ones

    def deviates(self, kind, tensor, ranks, what, cause="", **more):
        self.deviations.append(
            {"kind": kind, "tensor": tensor, "ranks": sorted(ranks), "differing": 0,
             "expected": "", "seen": "", "what": what, "cause": cause, **more}
        )  # fmt: skip

    def tell(self, why):
        """Of what is not judged, or may be a mistake and need not be one."""
        if why not in self.left_out:
            self.left_out = "; ".join(filter(None, [self.left_out, why]))

    def record(self) -> dict:
        return {"stage": self.key, "compared": self.compared, "exact": self.exact,
                "why_not": self.why_not, "left_out": self.left_out, "averages": self.averages,
                "adds_otherwise": self.adds_otherwise,
                "deviations": self.deviations}  # fmt: skip
