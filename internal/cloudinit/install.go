package cloudinit

import (
	_ "embed"
	"encoding/base64"
	"fmt"
	"strings"

	deploy "github.com/slipway-cloud/slipway/deploy/agent"
)

//go:embed install_head.sh
var installHead string

//go:embed install_tail.sh
var installTail string

// ConfigFile is the agent's configuration as it lies at AgentConfigPath.
func (a Agent) ConfigFile() ([]byte, error) {
	config, err := a.config().Render()
	if err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	return config, nil
}

// InstallScript is the part of Render that sets the agent up, alone: for a
// system that cloud-init does not install, such as one that boots from the
// network. It checks a first. The bytes are SECRET: they hold the enrolment
// token, and go to the node and nowhere else.
func InstallScript(a Agent) ([]byte, error) {
	if err := a.check(); err != nil {
		return nil, fmt.Errorf("the install script of the agent cannot be written: %w", err)
	}
	return a.installScript()
}

// installScript runs the installer of deploy/agent, which it carries with all
// that it needs. Every value is inside a file's base64; the script around them
// is always the same text, so that no value can become a command.
func (a Agent) installScript() ([]byte, error) {
	config, err := a.ConfigFile()
	if err != nil {
		return nil, err
	}
	files, err := deploy.Files()
	if err != nil {
		return nil, err
	}
	files = append(files, deploy.File{Name: "agent.yaml", Content: config}, deploy.File{Name: "token", Content: []byte(a.Token.Reveal() + "\n")})
	if a.BinaryURL != "" {
		files = append(files, deploy.File{Name: "download", Content: []byte(a.BinaryURL + "\n" + a.BinarySHA256 + "\n")})
	}
	var b strings.Builder
	b.WriteString(installHead)
	for _, f := range files {
		fmt.Fprintf(&b, "put %s <<'END_OF_FILE'\n%s\nEND_OF_FILE\n", f.Name, wrap(base64.StdEncoding.EncodeToString(f.Content)))
	}
	b.WriteString(installTail)
	return []byte(b.String()), nil
}
