"""Reads what lies behind a URL of s3://, gs:// or hf:// by fsspec: `_urls.py URL`.

Says first what is there, as a line of JSON. Answers each line of JSON on stdin, [index, start,
length], with how many bytes follow, and these bytes; and "list" with what is there now. What it
is asked for is all that it fetches. Started by verify/formats/url.cc; nothing is written.
"""

import json
import sys

TAGS = ("ETag", "generation", "md5Hash", "etag", "blob_id", "oid", "mtime", "LastModified")
FILES_MAX = 100_000
TEXT_MAX = 300


def _say(answer: object) -> None:
    sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
    sys.stdout.buffer.flush()


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, FileNotFoundError):  # some say of it only which
        text = f"nothing is there: {text}"
    return text[:TEXT_MAX]


class Place:
    """One URL: its files, and what is open of them."""

    def __init__(self, url: str):
        import fsspec

        protocol = url.split("://", 1)[0]
        self.fs = fsspec.get_filesystem_class(protocol)(use_listings_cache=False)
        self.root = self.fs._strip_protocol(url).rstrip("/")
        if protocol == "hf":  # whose listings leave out what goes without saying, as models/
            self.root = self.fs.resolve_path(self.root).unresolve()
        self.open: dict = {}
        self.paths: list = []

    def list(self) -> list:
        """Name below the URL (empty: the URL itself), bytes, and what changes with the content."""
        self.fs.invalidate_cache()
        found = self.fs.find(self.root, detail=True)
        if len(found) > FILES_MAX:
            raise ValueError(f"expected at most {FILES_MAX} objects, found {len(found)}")
        files, paths = [], []
        for path, info in sorted(found.items()):
            if path.endswith("/") or info.get("type") == "directory":  # it only shows a folder
                continue
            name = path[len(self.root) :].lstrip("/") if path.startswith(self.root) else path
            lfs = info.get("lfs") or {}
            tag = next((info[key] for key in TAGS if info.get(key)), "")
            paths.append(path)
            files.append([name, int(info["size"] or 0), str(lfs.get("sha256") or tag)])
        if not files:
            raise FileNotFoundError(self.root)
        self.paths = self.paths or paths
        return files

    def read(self, index: int, start: int, length: int) -> bytes:
        file = self.open.get(index)
        if file is None:  # s3fs holds each range against the ETag of the opening
            file = self.open[index] = self.fs.open(self.paths[index], "rb", cache_type="none")
        file.seek(start)
        return file.read(length)


def serve(make) -> None:
    """Answers what is asked of the place that `make` returns."""
    try:
        place = make()
        _say({"files": place.list(), "texts": getattr(place, "texts", {})})
    except ImportError as error:
        _say({"lacks": _one_line(error)})
        return
    except BaseException as error:  # every backend has exceptions of its own
        _say({"error": _one_line(error)})
        return
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            if asked == "list":
                _say({"files": place.list()})
                continue
            data = place.read(*asked)
        except BaseException as error:
            _say({"error": _one_line(error)})
            continue
        _say({"bytes": len(data)})
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    serve(lambda: Place(sys.argv[1]))
