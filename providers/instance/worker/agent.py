"""The agent of an instance's worker: it answers /readyz and /info, and sends heartbeats.

It enrols once with a one-time token and a key of its own, and numbers its heartbeats. It needs
nothing but Python's standard library, and takes one argument: its settings as JSON.
"""

import hashlib
import http.server
import json
import os
import secrets
import ssl
import sys
import threading
import time
import urllib.request

VERSION = "1.0.1"
BUILD_DATE = "2026-11-28"
INTERVAL = 10  # seconds between two heartbeats


def checksum():
    with open(os.path.abspath(__file__), "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


class Worker:
    def __init__(self, settings):
        self.settings = settings
        self.checksum = checksum()
        self.ready = False
        self.model = ""
        self.last_active = 0

    def ask_vllm(self, path):
        request = urllib.request.Request(self.settings["vllm"] + path, headers={"Authorization": "Bearer " + self.settings["api_key"]})
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.read()

    def look(self):
        """look reads whether vLLM serves the model."""
        self.ready, self.model = False, ""
        try:
            listed = [m.get("id", "") for m in json.loads(self.ask_vllm("/v1/models")).get("data", [])]
            if self.settings["model"] in listed:
                self.model = self.settings["model"]
            self.ask_vllm("/health")
            self.ready = self.model != ""
        except (OSError, ValueError):
            pass  # vLLM does not answer yet

    def active(self):
        """active returns how many requests vLLM works on, and the last number where it does not say:
        a drain that is told 0 ends. Where the connection is refused or cut, vLLM has ended, and its
        requests with it."""
        total = 0
        try:
            for line in self.ask_vllm("/metrics").decode().splitlines():
                if line.startswith(("vllm:num_requests_running", "vllm:num_requests_waiting")):
                    total += int(float(line.rsplit(" ", 1)[1]))
        except (OSError, ValueError) as err:
            if not isinstance(getattr(err, "reason", err), ConnectionError):
                return self.last_active
            total = 0
        self.last_active = total
        return total

    def post(self, path, body, key=None):
        url = self.settings["heartbeat_url"].rstrip("/") + path
        headers = {"Content-Type": "application/json"}
        if key:
            headers["Authorization"] = "Bearer " + key
        context = ssl.create_default_context(cafile=self.settings["ca"]) if url.startswith("https:") else None
        request = urllib.request.Request(url, data=json.dumps(body).encode(), headers=headers, method="POST")
        with urllib.request.urlopen(request, timeout=10, context=context) as answer:
            return json.loads(answer.read() or b"{}")

    def load(self):
        try:
            with open(self.settings["state"]) as f:
                return json.load(f)
        except (OSError, ValueError):
            return {}

    def store(self, state):
        new = self.settings["state"] + ".new"
        with open(new, "w", opener=lambda p, flags: os.open(p, flags, 0o600)) as f:
            json.dump(state, f)
            f.flush()
            os.fsync(f.fileno())
        os.replace(new, self.settings["state"])

    def send_heartbeat(self):
        """send_heartbeat sends one heartbeat. The number is stored first: none is used twice."""
        state = self.load()
        token = hashlib.sha256(self.settings["token"].encode()).hexdigest()
        if state.get("token") != token:
            # The key is stored before it is sent: a request whose answer is lost is repeated with it.
            state = {"token": token, "key": secrets.token_urlsafe(32), "sequence": 0, "enrolled": False}
            self.store(state)
        if not state["enrolled"]:
            self.post("/agent/v1/instance/enroll", {"token": self.settings["token"], "key": state["key"]})
            state["enrolled"] = True
        state["sequence"] += 1
        self.store(state)
        self.look()
        self.post("/agent/v1/instance/heartbeat", {
            "instance_id": self.settings["instance"], "sequence": state["sequence"], "ready": self.ready, "model": self.model,
            "checksum": self.checksum, "version": VERSION, "active": self.active(), "sent_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }, state["key"])

    def run(self):
        while True:
            try:
                self.send_heartbeat()
            except (OSError, ValueError, KeyError) as err:
                print("heartbeat failed:", type(err).__name__, file=sys.stderr, flush=True)
            time.sleep(INTERVAL)


def handler(worker):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            if self.path == "/readyz":
                worker.look()
                self.answer(200 if worker.ready else 503, {"ready": worker.ready, "model": worker.model})
            elif self.path == "/info":
                self.answer(200, {"version": VERSION, "build_date": BUILD_DATE, "checksum": worker.checksum})
            else:
                self.answer(404, {})

        def answer(self, status, body):
            raw = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *_):
            pass

    return Handler


def main():
    with open(sys.argv[1]) as f:
        settings = json.load(f)
    worker = Worker(settings)
    server = http.server.ThreadingHTTPServer(("", settings["listen"]), handler(worker))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    worker.run()


if __name__ == "__main__":
    main()
