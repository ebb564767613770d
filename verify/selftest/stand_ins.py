"""Stand-ins for the servers behind gs:// and hf://: as much of Cloud Storage's JSON API and of the
Hub's as gcsfs and HfFileSystem ask for, on the loopback and without credentials.

They hold objects in memory, below bucket/. What a test does while an object is read, it does in
`on_read`: it is called with the object's name before its bytes go out.
"""

import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, quote, unquote, urlsplit

PAGE = 2  # entries of a listing, of which the real ones give 1,000 at once


class Refused(Exception):
    """An answer of a status other than 200; headers: what it says besides."""

    def __init__(self, status, text, **headers):
        super().__init__(text)
        self.status, self.text = status, text
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


class StandIn:
    """Objects by name, each with a generation that a new content raises."""

    def __init__(self):
        self.objects, self.generations = {}, {}
        self.on_read = self.on_list = lambda name: None
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                stand_in.answer(self)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.handle_error = lambda *_: None  # who asked may go at any time
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def put(self, name, content):
        self.objects[name] = content
        self.generations[name] = self.generations.get(name, 1_700_000_000_000_000) + 1

    def answer(self, request):
        """Sends what `asked` returns: an object for JSON, or bytes."""
        asked = urlsplit(request.path)
        words = {key: values[0] for key, values in parse_qs(asked.query).items()}
        status, headers = 200, {}
        try:
            said = self.asked(asked.path, words, headers)
            kind = "application/octet-stream" if isinstance(said, bytes) else "application/json"
            if not isinstance(said, bytes):
                said = json.dumps(said).encode()
            elif wanted := request.headers.get("Range"):
                first, last = re.fullmatch(r"bytes=(\d+)-(\d+)", wanted).groups()
                if int(first) >= len(said):
                    raise Refused(416, "Requested range not satisfiable")
                headers["Content-Range"] = f"bytes {first}-{last}/{len(said)}"
                status, said = 206, said[int(first) : int(last) + 1]
        except Refused as refused:
            kind, status, said = "text/plain", refused.status, refused.text.encode()
            headers = refused.headers
        request.send_response(status)
        sent = {"Content-Type": kind, "Content-Length": str(len(said)), **headers}
        for name, value in sent.items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(said)

    def read(self, name):
        self.on_read(name)
        return self.objects[name]

    def page(self, entries, token):
        """These of the entries, and the token of what follows; empty: nothing does."""
        first = int(token or 0)
        return entries[first : first + PAGE], str(first + PAGE) * (first + PAGE < len(entries))


class Google(StandIn):
    """Of Cloud Storage: one bucket, `bucket`."""

    scheme, root = "gs", "gs://bucket"
    missing = {"gs://bucket/none": "nothing is there", "gs://other/a": "nothing is there"}

    def variables(self):
        return {"STORAGE_EMULATOR_HOST": self.url}

    def resource(self, name):
        content, generation = self.objects[name], str(self.generations[name])
        return {"kind": "storage#object", "name": name, "bucket": "bucket",
                "id": f"bucket/{name}/{generation}", "generation": generation,
                "metageneration": "1", "size": str(len(content)), "etag": f"{generation}=",
                "updated": "2026-01-02T03:04:05.678Z",
                "timeCreated": "2026-01-02T03:04:05.678Z"}  # fmt: skip

    def asked(self, path, words, headers):
        found = re.fullmatch(r"(/download)?/storage/v1/b/([^/]+)(?:/o(?:/([^/]+))?)?", path)
        if found is None or found[2] != "bucket":
            raise Refused(404, json.dumps({"error": {"code": 404, "message": "no such bucket"}}))
        name = unquote(found[3]) if found[3] else None
        if name is None:
            return self.listing(words) if path.endswith("/o") else {"kind": "storage#bucket"}
        if name not in self.objects:
            raise Refused(404, json.dumps({"error": {"code": 404, "message": "no such object"}}))
        return self.read(name) if found[1] else self.resource(name)

    def listing(self, words):
        prefix, delimiter = words.get("prefix", ""), words.get("delimiter", "")
        self.on_list(prefix)
        names, prefixes = [], set()
        for name in sorted(name for name in self.objects if name.startswith(prefix)):
            head, found, _ = name[len(prefix) :].partition(delimiter or "\0")
            if found:
                prefixes.add(prefix + head + delimiter)
            else:
                names.append(name)
        names, follows = self.page(names, words.get("pageToken"))
        said = {"kind": "storage#objects", "items": [self.resource(name) for name in names],
                "prefixes": sorted(prefixes)}  # fmt: skip
        return {**said, "nextPageToken": follows} if follows else said


class HuggingFace(StandIn):
    """Of the Hub: one model, `org/bucket`, at main, at v1.0 and as a pull request has it."""

    scheme, root = "hf", "hf://org/bucket"
    missing = {"hf://org/bucket/none": "nothing is there", "hf://org/other": "repository not found",
               "hf://org/bucket@v9/a": "revision not found"}  # fmt: skip

    def variables(self):
        return {"HF_ENDPOINT": self.url, "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1",
                "HF_HUB_OFFLINE": "0"}  # fmt: skip

    def is_large(self, name):
        """Such a file is in LFS, and comes from another server."""
        return not name.endswith(".json")

    def entry(self, name):
        content = self.objects[name]
        digest = hashlib.sha256(content).hexdigest()
        plain = {"type": "file", "path": name, "size": len(content), "oid": digest[:40]}
        if not self.is_large(name):
            return plain
        lfs = {"oid": digest, "size": len(content), "pointerSize": 134}
        return {**plain, "lfs": lfs, "xetHash": digest}

    def asked(self, path, words, headers):
        if path.startswith("/cdn/"):
            return self.read(unquote(path[len("/cdn/") :]))
        api = re.fullmatch(r"/api/models/org/bucket(?:/(revision|tree)/([^/]+)(?:/(.+))?)?", path)
        file = re.fullmatch(r"/org/bucket/resolve/([^/]+)/(.+)", path)
        if api is None and file is None:
            raise Refused(404, "", X_Error_Code="RepoNotFound")
        if (api[2] if api else file[1]) not in (None, "main", "v1.0", "refs%2Fpr%2F1"):
            raise Refused(404, "", X_Error_Code="RevisionNotFound")
        if file is not None:
            if unquote(file[2]) not in self.objects:
                raise Refused(404, "", X_Error_Code="EntryNotFound")
            if self.is_large(file[2]):
                raise Refused(302, "", Location=f"{self.url}/cdn/{file[2]}")
            return self.read(unquote(file[2]))
        if api[1] != "tree":
            return {"id": "org/bucket", "sha": "1" * 40, "siblings": [], "tags": []}
        return self.tree(path, unquote(api[3] or ""), words, headers)

    def tree(self, path, folder, words, headers):
        self.on_list(folder)
        below = folder + "/" if folder else ""
        names = sorted(name for name in self.objects if name.startswith(below))
        if not names:
            raise Refused(404, "", X_Error_Code="EntryNotFound")
        is_recursive = words.get("recursive", "").lower() == "true"
        entries = {}
        for name in names:
            parts = name[len(below) :].split("/")
            for count in range(1, len(parts) if is_recursive else min(2, len(parts))):
                inner = below + "/".join(parts[:count])
                entries[inner] = {"type": "directory", "path": inner, "size": 0, "oid": "2" * 40}
            if is_recursive or len(parts) == 1:
                entries[name] = self.entry(name)
        found, follows = self.page(list(entries.values()), words.get("cursor"))
        if follows:
            recursive = quote(words.get("recursive", "false"))
            headers["Link"] = (f'<{self.url}{path}?recursive={recursive}&cursor={follows}>; '
                               'rel="next"')  # fmt: skip
        return found
