package spec_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

func TestNormalMachine_TheSpecifiedSample(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "proto", "testdata", "machine.json"))
	require.NoError(t, err)
	var sample struct {
		Labels map[string]string
		Spec   spec.MachineSpec
	}
	require.NoError(t, json.Unmarshal(text, &sample))
	got, err := spec.NormalMachine(sample.Spec, sample.Labels)
	require.NoError(t, err)
	require.Equal(t, spec.MachineSpec{
		SSHEndpoint: "10.20.30.40:22", BMCEndpoint: "10.20.30.41", TargetClusterRef: "cluster-a", Provider: "dc-1",
		MACAddresses: []string{"aa:bb:cc:dd:ee:ff"},
	}, got)
}

func TestNormalMachine(t *testing.T) {
	t.Parallel()
	got, err := spec.NormalMachine(spec.MachineSpec{
		MACAddresses: []string{"52-54-00-12-34-57", "525400123456", "52:54:00:12:34:57"}, Serial: " SN 1 ", Provider: "fake",
	}, map[string]string{"provider": "fake", "example.com/role": "worker ü"})
	require.NoError(t, err)
	require.Equal(t, spec.MachineSpec{
		MACAddresses: []string{"52:54:00:12:34:56", "52:54:00:12:34:57"}, Serial: "SN 1", Provider: "fake",
	}, got)

	long, many := strings.Repeat("x", 257), map[string]string{}
	for i := range spec.MaxLabels + 1 {
		many[fmt.Sprint(i)] = ""
	}
	for name, tc := range map[string]struct {
		spec   spec.MachineSpec
		labels map[string]string
		want   string
	}{
		"names as hosts":        {spec.MachineSpec{SSHEndpoint: "node-1.example:2222", BMCEndpoint: "https://bmc.example:8443/"}, nil, ""},
		"IPv6":                  {spec.MachineSpec{SSHEndpoint: "[fd00::1]:22", BMCEndpoint: "fd00::2"}, nil, ""},
		"no port":               {spec.MachineSpec{SSHEndpoint: "10.0.0.1"}, nil, "spec.ssh_endpoint"},
		"port 0":                {spec.MachineSpec{SSHEndpoint: "10.0.0.1:0"}, nil, "spec.ssh_endpoint"},
		"port 65536":            {spec.MachineSpec{SSHEndpoint: "10.0.0.1:65536"}, nil, "spec.ssh_endpoint"},
		"an option as a host":   {spec.MachineSpec{SSHEndpoint: "-oProxyCommand=x:22", BMCEndpoint: "-x"}, nil, "spec.bmc_endpoint spec.ssh_endpoint"},
		"no address":            {spec.MachineSpec{SSHEndpoint: "0.0.0.0:22", BMCEndpoint: "224.0.0.1"}, nil, "spec.bmc_endpoint spec.ssh_endpoint"},
		"a zone":                {spec.MachineSpec{SSHEndpoint: "[fe80::1%eth0]:22"}, nil, "spec.ssh_endpoint"},
		"a login in the URL":    {spec.MachineSpec{BMCEndpoint: "https://root:calvin@10.0.0.1"}, nil, "spec.bmc_endpoint"},
		"a path":                {spec.MachineSpec{BMCEndpoint: "https://10.0.0.1/redfish"}, nil, "spec.bmc_endpoint"},
		"plain http":            {spec.MachineSpec{BMCEndpoint: "http://10.0.0.1"}, nil, "spec.bmc_endpoint"},
		"a long host":           {spec.MachineSpec{BMCEndpoint: long}, nil, "spec.bmc_endpoint"},
		"a cluster with a path": {spec.MachineSpec{TargetClusterRef: "a/b"}, nil, "spec.target_cluster_ref"},
		"a group MAC":           {spec.MachineSpec{MACAddresses: []string{"52:54:00:12:34:56", "ff:ff:ff:ff:ff:ff"}}, nil, "spec.mac_addresses[1]"},
		"many MACs":             {spec.MachineSpec{MACAddresses: make([]string, 17)}, nil, "spec.mac_addresses"},
		"two providers":         {spec.MachineSpec{Provider: "a"}, map[string]string{"provider": "b"}, "spec.provider"},
		"a provider label":      {spec.MachineSpec{}, map[string]string{"provider": "DC 1"}, "spec.provider"},
		"a location in lines":   {spec.MachineSpec{Location: "a\nb", Rack: long}, nil, "spec.location spec.rack"},
		"a serial of firmware":  {spec.MachineSpec{Serial: "Default string"}, nil, "spec.serial"},
		"many labels":           {spec.MachineSpec{}, many, "labels"},
		"a label's name":        {spec.MachineSpec{}, map[string]string{"a b": ""}, "labels"},
		"a label's value":       {spec.MachineSpec{}, map[string]string{"a": long, "b": "\x1b[2J", "c": "\xff"}, "labels.a labels.b labels.c"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := spec.NormalMachine(tc.spec, tc.labels)
			var invalid *spec.InvalidError
			var fields []string
			if errors.As(err, &invalid) {
				for _, f := range invalid.Fields {
					fields = append(fields, f.Field)
				}
				require.NotContains(t, err.Error(), "calvin")
			}
			require.Equal(t, tc.want, strings.Join(fields, " "))
		})
	}
}

func TestChangedAccess(t *testing.T) {
	t.Parallel()
	s := spec.MachineSpec{
		SSHEndpoint: "a:22", BMCEndpoint: "b", TargetClusterRef: "c", MACAddresses: []string{"52:54:00:12:34:56"},
		Provider: "p", Location: "l", Rack: "r", Serial: "s",
	}
	other := s
	other.TargetClusterRef, other.Location, other.Rack = "x", "x", "x"
	require.Empty(t, s.ChangedAccess(other))
	require.Equal(t, []string{"spec.ssh_endpoint", "spec.bmc_endpoint", "spec.mac_addresses", "spec.provider", "spec.serial"}, s.ChangedAccess(spec.MachineSpec{}))
}

func TestValidMachineID(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{"m-1": true, "A.b_c-9": true, "": false, "a/b": false, "a b": false, strings.Repeat("x", 129): false} {
		require.Equal(t, want, spec.ValidMachineID(text), text)
	}
}
