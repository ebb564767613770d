"""Checkpoints behind s3://, on a server of moto on the loopback."""

import socket
import subprocess
import time

from command import CommandTest
from test_stored_formats import safetensors

PUT = """
import boto3, pathlib, sys
s3 = boto3.client("s3")
s3.create_bucket(Bucket="bucket")
for path in pathlib.Path("put").rglob("*"):
    if path.is_file():
        s3.upload_file(str(path), "bucket", str(path.relative_to("put")))
s3.put_object(Bucket="bucket", Key="a/")  # as consoles make a folder
"""


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


class Urls(CommandTest):
    labels = "selftest nightly"
    timeout_s = 240

    def setUp(self):
        super().setUp()
        self.python = self.python_of("moto")
        port = free_port()
        self.variables = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
                          "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b",
                          "AWS_DEFAULT_REGION": "us-east-1"}  # fmt: skip
        server = subprocess.Popen([self.python, "-m", "moto.server", "-p", str(port)],
                                  stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL)  # fmt: skip
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        for _ in range(600):
            with socket.socket() as asking:
                if asking.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        for name in ("a", "run/step-1", "run/step-2"):
            self.write(f"put/{name}/model.safetensors", safetensors(w=[1], b=[ord(name[-1])]))
        self.write("put/cut/model.safetensors", safetensors(w=[1, 2, 3])[:-4])
        packed = self.run_process("tar", "cf", "put/a.tar", "-C", "put", "a")
        self.assert_exit(packed, 0)
        put = self.run_process(self.python, "-c", PUT, timeout=120, **self.variables)
        self.assert_exit(put, 0)

    def audited(self, url, code):
        return self.judged("audit", url, "--python", self.python, code=code, **self.variables)

    def test_are_read_as_the_files_are(self):
        plain = self.judged("audit", "put/a", code=0)["tensors"]
        for url in ("s3://bucket/a", "s3://bucket/a/", "s3://bucket/a.tar"):
            self.assertEqual(self.audited(url, 0)["tensors"], plain, url)
        self.audited("s3://bucket/a/model.safetensors", 0)
        self.audited("s3://bucket/run", 0)
        self.audited("s3://bucket/cut", 1)

    def test_what_is_not_there_is_told(self):
        for url, why in {"s3://bucket/none": "nothing is there",
                         "s3://other/a": "bucket does not exist"}.items():  # fmt: skip
            self.refused("audit", url, "--python", self.python, names=[url, why],
                         **self.variables)  # fmt: skip
