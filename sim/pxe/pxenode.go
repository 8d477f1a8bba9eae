// Package pxesim is a SIMULATED machine that boots from the network: an HTTP
// client that fetches and follows iPXE scripts as firmware would, loads what
// they name, and then reports as an installer would. It knows the server by its
// answers only.
package pxesim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Machine is one simulated machine. It is used by one goroutine at a time.
type Machine struct {
	// Server is where the DHCP server sends it, such as http://127.0.0.1:8080.
	Server string
	MAC    string // 52:54:00:12:34:56
	// SMBIOS has the values of the machine's SMBIOS, by iPXE's names: manufacturer, product,
	// serial, uuid; and ip.
	SMBIOS map[string]string
	Client *http.Client // nil: one with a deadline
}

// The bounds of what a machine takes from a server.
const (
	maxScript   = 64 << 10
	maxLoad     = 64 << 20
	callLimit   = 30 * time.Second
	maxChain    = 8    // scripts of one boot
	maxCommands = 1000 // of one script
)

// Kind is what a boot came to.
type Kind string

// The kinds.
const (
	Waits    Kind = "waits"    // it would sleep and ask again
	Installs Kind = "installs" // an installer was loaded
	Local    Kind = "local"    // it boots its disk
)

// Boot is how one boot went.
type Boot struct {
	Kind        Kind
	Said        []string // what was shown
	Script      string   // the last script
	CommandLine string
	Images      map[string][]byte // by name: kernel, initrd0, ...
	// SeedURL is where cloud-init's NoCloud source looks, from the command line;
	// Token is the boot token in it.
	SeedURL, Token string
}

// Boot starts the machine: it follows scripts until it would sleep, boot an
// installer or boot its disk. An image that cannot be loaded whole is an error.
func (m *Machine) Boot(ctx context.Context) (Boot, error) {
	at := m.Server + "/boot/start.ipxe"
	var b Boot
	for range maxChain {
		body, err := m.get(ctx, at, maxScript)
		if err != nil {
			return b, err
		}
		b.Script = string(body)
		if !strings.HasPrefix(b.Script, "#!ipxe\n") {
			return b, fmt.Errorf("%s is no iPXE script", at)
		}
		next, err := m.follow(ctx, &b)
		if err != nil || next == "" {
			return b, err
		}
		at = next
	}
	return b, errors.New("the scripts lead in a circle")
}

// UserData fetches what the installer is told.
func (m *Machine) UserData(ctx context.Context, b Boot) (user, meta string, err error) {
	u, err := m.get(ctx, b.SeedURL+"user-data", maxScript)
	if err != nil {
		return "", "", err
	}
	d, err := m.get(ctx, b.SeedURL+"meta-data", maxScript)
	return string(u), string(d), err
}

// Report is the report of an installer, with the MAC address.
type Report struct {
	MACAddress           string `json:"mac_address"`
	IPAddress            string `json:"ip_address,omitempty"`
	Vendor               string `json:"vendor,omitempty"`
	SerialNumber         string `json:"serial_number,omitempty"`
	InstallationStatus   string `json:"installation_status,omitempty"`
	InstallationProgress *int   `json:"installation_progress,omitempty"`
	InstallationError    string `json:"installation_error,omitempty"`
}

// Answer is what the server says to a report.
type Answer struct {
	Status          int    `json:"-"` // HTTP
	NodeID          string `json:"node_id"`
	State           string `json:"state"`
	Effect          string `json:"effect"`
	InstallAttempts int    `json:"install_attempts"`
}

// Report sends a report with a boot token, "" for none.
func (m *Machine) Report(ctx context.Context, token string, r Report) (Answer, error) {
	r.MACAddress = m.MAC
	body, err := json.Marshal(r)
	if err != nil {
		return Answer{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, m.Server+"/api/v1/report", bytes.NewReader(body))
	if err != nil {
		return Answer{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := m.client().Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer func() { _ = res.Body.Close() }()
	a := Answer{Status: res.StatusCode}
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxScript))
	if err != nil || res.StatusCode != http.StatusOK {
		return a, err
	}
	return a, json.Unmarshal(raw, &a)
}

func (m *Machine) client() *http.Client {
	if m.Client != nil {
		return m.Client
	}
	return &http.Client{Timeout: callLimit}
}

// get fetches one thing whole; one that ends short is an error, as it is for
// firmware.
func (m *Machine) get(ctx context.Context, at string, limit int64) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, err
	}
	res, err := m.client().Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %d", withoutToken(at), res.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, limit+1))
	if err != nil {
		return nil, fmt.Errorf("%s ended short: %w", withoutToken(at), err)
	}
	if int64(len(body)) > limit {
		return nil, fmt.Errorf("%s is over %d bytes", withoutToken(at), limit)
	}
	return body, nil
}

func withoutToken(at string) string {
	u, err := url.Parse(at)
	if err != nil {
		return "a URL"
	}
	if i := strings.Index(u.Path, "/pxe_"); i >= 0 {
		u.Path = u.Path[:i] + "/pxe_..."
	}
	u.RawQuery = ""
	return u.String()
}
