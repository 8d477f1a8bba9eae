package cloudinit

import (
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"gopkg.in/yaml.v3"
)

// unit is the agent's systemd unit.
//
//go:embed slipway-agent.service
var unit []byte

//go:embed install_head.sh
var installHead string

//go:embed install_tail.sh
var installTail string

// ConfigFile is the agent's configuration as it lies at AgentConfigPath.
func (a Agent) ConfigFile() ([]byte, error) {
	if err := a.config().Validate(); err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	config, err := yaml.Marshal(a.config())
	if err != nil {
		return nil, errors.New("the agent's configuration cannot be encoded as YAML")
	}
	return config, nil
}

// installScript puts the agent's files on the node and starts it. Every value
// is inside a file's base64; the script around them is always the same text, so
// that no value can become a command.
func (a Agent) installScript() ([]byte, error) {
	config, err := a.ConfigFile()
	if err != nil {
		return nil, err
	}
	files := []struct {
		path, mode string
		content    []byte
	}{
		{AgentConfigPath, "0600", config},
		{TokenPath, "0600", []byte(a.Token.Reveal() + "\n")},
		{UnitPath, "0644", unit},
	}
	if a.BinaryURL != "" {
		files = append(files, struct {
			path, mode string
			content    []byte
		}{downloadPath, "0600", []byte(a.BinaryURL + "\n" + a.BinarySHA256 + "\n")})
	}
	var b strings.Builder
	b.WriteString(installHead)
	for _, f := range files {
		fmt.Fprintf(&b, "put %s %s <<'END_OF_FILE'\n%s\nEND_OF_FILE\n", f.path, f.mode,
			wrap(base64.StdEncoding.EncodeToString(f.content)))
	}
	b.WriteString(installTail)
	return []byte(b.String()), nil
}
