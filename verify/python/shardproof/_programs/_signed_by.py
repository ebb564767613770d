"""Asks model-signing (OpenSSF Model Signing) whether a seal has the signature of a key.

usage: _signed_by.py SEAL SIGNATURE PUBLIC_KEY

The last line on stdout is JSON: `signed`, or `refused` with the reason; or `error`, why there is no
answer. Nothing is asked of a network: the key is a file.
"""

import json
import pathlib
import sys


def answer(seal: str, signature: str, key: str) -> dict:
    try:
        from model_signing import verifying

        config = verifying.Config().use_elliptic_key_verifier(public_key=pathlib.Path(key))
    except ImportError as error:
        return {"error": f"it needs the package model-signing: {error}"}
    except Exception as error:  # whatever a file that is no key raises
        return {"error": f"{key}: no public key of an elliptic curve: {error}"}
    try:
        config.verify(pathlib.Path(seal), pathlib.Path(signature))
    except Exception as error:  # a signature is bad input, and may raise anything
        return {"refused": str(error) or type(error).__name__}
    return {"signed": True}


if __name__ == "__main__":
    print(json.dumps(answer(*sys.argv[1:])))
