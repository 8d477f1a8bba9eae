package maassim

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"io"
	"mime"
	"mime/multipart"
	"net/mail"
	"regexp"
	"strings"
	"time"
)

// setHWSync writes the flag and interval; it installs nothing by itself.
func (s *Server) setHWSync(m *machine, on bool) {
	m.hwSync, m.lastSync, m.syncInterval = on, time.Time{}, 0
	m.syncGen++
	m.syncDead = false
	if on {
		m.syncInterval = int(s.opt.Durations.SyncInterval / time.Second)
		if m.syncAgent && m.status == Deployed {
			s.nextSync(m)
		}
		return
	}
	m.syncAgent, m.syncHealthy, m.syncLeft = false, false, -1
}

// startSync is what first-boot vendor-data leaves behind: the units, unless
// user-data took the place of vendor-data's runcmd or write_files.
func (s *Server) startSync(m *machine, dead bool) {
	if !m.hwSync || dead {
		return
	}
	m.syncDead = s.take(m, "hw_sync_never", "stage:first_boot") != nil
	if !m.syncShipped {
		return
	}
	m.syncAgent, m.syncHealthy, m.syncLeft = true, true, -1
	if f := s.take(m, "hw_sync_stops", "stage:first_boot"); f != nil {
		m.syncLeft = int(f.Number("after", 1))
	}
	s.nextSync(m)
}

// nextSync runs the agent's timer; last_sync moves only when the node runs and
// its agent is well.
func (s *Server) nextSync(m *machine) {
	m.syncGen++
	gen := m.syncGen
	every := time.Duration(m.syncInterval) * time.Second
	s.later(m, every, func() bool { return m.syncGen == gen && m.hwSync && m.syncAgent }, func(*tx) {
		up := m.hw != nil && m.hw.OSUp()
		if m.status == Deployed && m.syncHealthy && !m.syncDead && up && m.syncLeft != 0 {
			m.lastSync = s.now()
			if m.syncLeft > 0 {
				m.syncLeft--
			}
		}
		s.nextSync(m)
	})
}

// SetHWSyncAgent says whether the hardware sync agent on the node runs. true on
// a node that has none installs it, as an operator would do over SSH. It reports
// whether the machine is in MAAS.
func (s *Server) SetHWSyncAgent(systemID string, healthy bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.machineByID(systemID)
	if m == nil {
		return false
	}
	fresh := healthy && !m.syncAgent
	m.syncHealthy = healthy
	if healthy {
		m.syncAgent = true
	}
	if fresh && m.hwSync && m.status == Deployed {
		s.nextSync(m)
	}
	return true
}

// vendorData is MAAS's own cloud-config for the first boot.
func (s *Server) vendorData(m *machine) []byte {
	if !m.hwSync {
		return nil
	}
	return []byte("#cloud-config\n" +
		"write_files:\n" +
		"  - path: /etc/maas/maas-machine-creds.yml\n    permissions: '0600'\n    content: \"reporting:\\n  maas:\\n    type: webhook\\n    consumer_key: " + m.token[:10] + "\\n    token_key: " + m.token +
		"\\n    token_secret: " + m.secret + "\\n\"\n" +
		"  - path: /lib/systemd/system/maas_hardware_sync.service\n    content: \"[Service]\\nType=oneshot\\nExecStart=/usr/bin/maas-run-scripts report-results\\n\"\n" +
		"  - path: /lib/systemd/system/maas_hardware_sync.timer\n    content: \"[Timer]\\nOnUnitActiveSec=" + itoa(m.syncInterval) + "\\n[Install]\\nWantedBy=timers.target\\n\"\n" +
		"runcmd:\n  - [systemctl, enable, --now, maas_hardware_sync.timer]\n")
}

// maxUserData caps an unpacked document.
const maxUserData = 4 << 20

var overriding = regexp.MustCompile(`(?m)^(runcmd|write_files)[ \t]*:`)

// overridesVendorData reports whether cloud-init would drop vendor-data's runcmd
// or write_files: any cloud-config of the user-data sets one of them without a
// merge directive that appends lists.
func overridesVendorData(doc []byte) bool {
	if bytes.HasPrefix(doc, []byte{0x1f, 0x8b}) {
		if z, err := gzip.NewReader(bytes.NewReader(doc)); err == nil {
			if plain, err := io.ReadAll(io.LimitReader(z, maxUserData)); err == nil {
				doc = plain
			}
		}
	}
	if msg, err := mail.ReadMessage(bytes.NewReader(doc)); err == nil {
		if kind, params, err := mime.ParseMediaType(msg.Header.Get("Content-Type")); err == nil && strings.HasPrefix(kind, "multipart/") {
			return anyPartOverrides(multipart.NewReader(msg.Body, params["boundary"]))
		}
	}
	return bytes.HasPrefix(doc, []byte("#cloud-config")) && configOverrides(string(doc), "")
}

func anyPartOverrides(parts *multipart.Reader) bool {
	for {
		p, err := parts.NextPart()
		if err != nil {
			return false
		}
		body, err := io.ReadAll(io.LimitReader(p, maxUserData))
		if err != nil {
			return false
		}
		kind, _, _ := mime.ParseMediaType(p.Header.Get("Content-Type"))
		if kind != "text/cloud-config" && !bytes.HasPrefix(body, []byte("#cloud-config")) {
			continue
		}
		directive := p.Header.Get("Merge-Type") + p.Header.Get("X-Merge-Type")
		if configOverrides(decodePart(p.Header.Get("Content-Transfer-Encoding"), body), directive) {
			return true
		}
	}
}

// configOverrides looks at one cloud-config document.
func configOverrides(doc, directive string) bool {
	if !overriding.MatchString(doc) {
		return false
	}
	for _, key := range []string{"merge_how", "merge_type"} {
		directive += topLevel(doc, key)
	}
	return !(strings.Contains(directive, "list") && (strings.Contains(directive, "append") || strings.Contains(directive, "prepend")))
}

// topLevel is the text of a top-level key of a YAML mapping, up to the next key.
func topLevel(doc, key string) string {
	var b strings.Builder
	inside := false
	for line := range strings.Lines(doc) {
		switch {
		case strings.HasPrefix(line, key+":"):
			inside = true
		case inside && line != "" && !strings.ContainsAny(line[:1], " -\t#\n"):
			return b.String()
		}
		if inside {
			b.WriteString(line)
		}
	}
	return b.String()
}

func decodePart(encoding string, body []byte) string {
	if !strings.EqualFold(encoding, "base64") {
		return string(body)
	}
	plain, err := io.ReadAll(base64.NewDecoder(base64.StdEncoding, bytes.NewReader(body)))
	if err != nil {
		return string(body)
	}
	return string(plain)
}
