
# is_right FILE compares a file with the sum that is expected.
is_right() { [ -f "$1" ] && [ "$(sha256sum <"$1")" = "$sum  -" ]; }

fetch() {
    if command -v curl >/dev/null; then
        curl -fsSL --proto =http,https --connect-timeout 20 --max-time 600 --retry 5 --retry-delay 3 -o "$2" "$1"
    else
        wget -q --timeout=20 --tries=6 --waitretry=3 -O "$2" "$1"
    fi
}

# The image's own agent, or the one that an earlier run of this installed.
agent=$root/usr/local/bin/slipway-agent
[ ! -L "$agent" ] || agent=$root/opt/slipway-agent/current/slipway-agent
if [ -f "$work/download" ]; then
    { read -r url; read -r sum; } <"$work/download"
    if ! is_right "$agent"; then
        agent=$work/slipway-agent
        fetch "$url" "$agent"
        if ! is_right "$agent"; then
            echo "slipway: the agent that was fetched does not have the expected sha256" >&2
            exit 1
        fi
        if tar -tzf "$agent" >/dev/null 2>&1; then # both programs in one archive
            mv "$agent" "$work/programs.tar.gz"
            tar -xzf "$work/programs.tar.gz" -C "$work" --no-same-owner slipway-agent
            tar -xzf "$work/programs.tar.gz" -C "$work" --no-same-owner slipway-gpu-pattern 2>/dev/null || true
            sum=$(sha256sum <"$agent")
            sum=${sum%% *}
        fi
    fi
elif [ -f "$agent" ]; then
    sum=$(sha256sum <"$agent")
    sum=${sum%% *}
else
    echo "slipway: the image holds no agent at /usr/local/bin/slipway-agent, and Slipway was told no URL of one (agent_binary_url of the profile, agent.binary_url of the install workflow)" >&2
    exit 1
fi

set -- --binary "$agent" --sha256 "$sum" --config "$work/agent.yaml" --token "$work/token"
[ ! -f "$work/slipway-gpu-pattern" ] || set -- "$@" --gpu-pattern "$work/slipway-gpu-pattern"
# Started without waiting: this runs in the middle of a boot.
sh "$work/install.sh" "$@" --no-wait
