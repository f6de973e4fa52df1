"""Serve a PosGPT with `transformers serve` on this machine alone, and ask it for a completion and in a chat.

python tests/compatibility/transformers_serve.py runs/windows "Where was Ada Example born?" runs/served
"""

import json
import shutil
import socket
import sys
import time
import urllib.request

import transformers
from transformers import AutoTokenizer
from transformers.cli.serve import Serve
from transformers.dynamic_module_utils import get_class_from_dynamic_module

model_folder, question, output = sys.argv[1:4]
# A chat needs a template. Of what was said, this one shows the model the last message: it answers one question.
shutil.copytree(model_folder, output, dirs_exist_ok=True)
tokenizer = AutoTokenizer.from_pretrained(output, trust_remote_code=True)
tokenizer.chat_template = "{{ messages[-1]['content'] }}⁇"
tokenizer.save_pretrained(output)

# The command itself looks for a model's class in transformers alone, even with --trust-remote-code.
transformers.PosGPTForCausalLM = get_class_from_dynamic_module("modeling_posgpt.PosGPTForCausalLM", output)
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
address = f"http://127.0.0.1:{port}"
server = Serve(output, trust_remote_code=True, device="cpu", host="127.0.0.1", port=port, non_blocking=True)


def post(path: str, **body) -> dict:
    data = json.dumps({"model": output, "max_tokens": 32, "temperature": 0, **body}).encode()
    request = urllib.request.Request(address + path, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as response:
        return json.load(response)


try:
    while not server.server.started:
        time.sleep(0.1)
    print("completion:", post("/v1/completions", prompt=f"{question}⁇")["choices"][0]["text"])
    chat = post("/v1/chat/completions", messages=[{"role": "user", "content": question}])
    print("chat:", chat["choices"][0]["message"]["content"])
finally:
    server.kill_server()
