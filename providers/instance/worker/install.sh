# Installs the worker of an instance: Docker, vLLM in a container, and the worker's agent. It is sent over
# SSH with its settings before it, and may run again: what is done is not done twice. Each phase that has
# ended is one line "slipway-phase NAME" on standard output.
#
# Settings: MODEL, API_KEY, TOKEN, INSTANCE, HEARTBEAT_URL, AGENT_SHA256, AGENT (base64), CA (base64),
# VLLM_IMAGE. ROOT is a folder before every path, for tests.
set -eu
umask 077
ROOT=${ROOT:-}
dir=$ROOT/opt/slipway-worker
phase() { echo "slipway-phase $1"; }

mkdir -p "$dir" "$ROOT/etc/systemd/system"
printf '%s' "$AGENT" | base64 -d >"$dir/agent.py.new"
echo "$AGENT_SHA256  $dir/agent.py.new" | sha256sum -c - >/dev/null || { echo "the agent came with another checksum" >&2; exit 3; }
mv "$dir/agent.py.new" "$dir/agent.py"
printf '%s' "$CA" | base64 -d >"$dir/ca.pem"
phase start

if ! command -v docker >/dev/null 2>&1; then
    apt-get update -q
    DEBIAN_FRONTEND=noninteractive apt-get install -y -q docker.io
fi
docker info >/dev/null
phase docker_install

printf 'VLLM_API_KEY=%s\n' "$API_KEY" >"$dir/vllm.env"
if [ -z "$(docker ps -q --filter name=slipway-vllm)" ]; then
    docker rm -f slipway-vllm >/dev/null 2>&1 || true
    docker run -d --name slipway-vllm --restart unless-stopped --gpus all --ipc host -p 8000:8000 --env-file "$dir/vllm.env" \
        "$VLLM_IMAGE" --model "$MODEL" --served-model-name "$MODEL" >/dev/null
fi
phase vllm_start

# A worker that has its key keeps it; the token is good for one enrolment.
cat >"$dir/agent.json" <<END
{"instance": "$INSTANCE", "model": "$MODEL", "token": "$TOKEN", "api_key": "$API_KEY", "heartbeat_url": "$HEARTBEAT_URL",
 "ca": "$dir/ca.pem", "state": "$dir/state.json", "vllm": "${VLLM_URL:-http://127.0.0.1:8000}", "listen": ${AGENT_PORT:-8080}}
END
cat >"$ROOT/etc/systemd/system/slipway-worker.service" <<END
[Unit]
Description=Slipway worker agent
After=network-online.target docker.service
[Service]
ExecStart=/usr/bin/env python3 $dir/agent.py $dir/agent.json
Restart=always
RestartSec=2
[Install]
WantedBy=multi-user.target
END
systemctl daemon-reload
systemctl enable slipway-worker.service
systemctl restart slipway-worker.service
phase done
