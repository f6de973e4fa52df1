"""Serve a PosGPT with `transformers serve` on this machine alone, and ask it for a completion and in a chat.

python tests/compatibility/transformers_serve.py runs/windows "Where was Ada Example born?" runs/served
"""

import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from transformers import AutoTokenizer

question, output = sys.argv[2], str(Path(sys.argv[3]).resolve())
# A chat needs a template. Of what was said, this one shows the model the last message: it answers one question.
shutil.copytree(sys.argv[1], output, dirs_exist_ok=True)
tokenizer = AutoTokenizer.from_pretrained(output, trust_remote_code=True)
tokenizer.chat_template = "{{ messages[-1]['content'] }}⁇"
tokenizer.save_pretrained(output)

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
address = f"http://127.0.0.1:{port}"
command = [sys.executable, "-m", "transformers.cli.transformers", "serve", output, "--trust-remote-code"]
server = subprocess.Popen([*command, "--device", "cpu", "--host", "127.0.0.1", "--port", str(port)])


def post(path: str, **body) -> dict:
    data = json.dumps({"model": output, "max_tokens": 32, "temperature": 0, **body}).encode()
    request = urllib.request.Request(address + path, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as response:
        return json.load(response)


try:
    for _ in range(240):
        try:
            urllib.request.urlopen(f"{address}/health", timeout=5)
            break
        except OSError:
            assert server.poll() is None, "the server has ended"
            time.sleep(1)
    print("completion:", post("/v1/completions", prompt=f"{question}⁇")["choices"][0]["text"])
    chat = post("/v1/chat/completions", messages=[{"role": "user", "content": question}])
    print("chat:", chat["choices"][0]["message"]["content"])
finally:
    server.terminate()
    server.wait(60)
