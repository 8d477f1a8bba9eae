package spec_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

func TestClusterSpec_Validate(t *testing.T) {
	t.Parallel()
	pin := "sha256:" + strings.Repeat("0a", 32)
	good := func() spec.ClusterSpec {
		return spec.ClusterSpec{APIURL: "https://10.0.0.1:6443", CAPins: []string{pin}, KubeconfigRef: "clusters/a", KubernetesVersion: "v1.34.1"}
	}
	require.NoError(t, good().Validate())
	endpoint, ok := good().Endpoint()
	require.True(t, ok)
	require.Equal(t, "10.0.0.1:6443", endpoint)
	for field, change := range map[string][]func(*spec.ClusterSpec){
		"api_url": {
			func(s *spec.ClusterSpec) { s.APIURL = "http://10.0.0.1:6443" }, func(s *spec.ClusterSpec) { s.APIURL = "https://10.0.0.1" },
			func(s *spec.ClusterSpec) { s.APIURL = "https://a:b@10.0.0.1:6443" }, func(s *spec.ClusterSpec) { s.APIURL = "https://10.0.0.1:6443/x" },
			func(s *spec.ClusterSpec) { s.APIURL = "https://10.0.0.1:6443?x" }, func(s *spec.ClusterSpec) { s.APIURL = "https://-x:6443" },
		},
		"ca_pins": {
			func(s *spec.ClusterSpec) { s.CAPins = nil }, func(s *spec.ClusterSpec) { s.CAPins = []string{"sha256:00"} },
			func(s *spec.ClusterSpec) { s.CAPins = []string{pin, strings.ToUpper(pin)} },
		},
		"kubeconfig_ref":     {func(s *spec.ClusterSpec) { s.KubeconfigRef = "" }, func(s *spec.ClusterSpec) { s.KubeconfigRef = "../x" }},
		"kubernetes_version": {func(s *spec.ClusterSpec) { s.KubernetesVersion = "1.34" }, func(s *spec.ClusterSpec) { s.KubernetesVersion = "v1.34.1 --token x" }},
	} {
		for i, f := range change {
			s := good()
			f(&s)
			err := s.Validate()
			require.ErrorContains(t, err, field, i)
		}
	}
}

func TestSameUUID(t *testing.T) {
	t.Parallel()
	const u = "4c4c4544-0042-3510-8054-b7c04f503033"
	for other, want := range map[string]bool{
		u: true, strings.ToUpper(u) + "\n": true, "44454c4c-4200-1035-8054-b7c04f503033": true,
		"4c4c4544-0042-3510-8054-b7c04f503034": false, "": false, "4c4c4544": false,
	} {
		require.Equal(t, want, spec.SameUUID(u, other), other)
	}
	for _, none := range []string{
		"00000000-0000-0000-0000-000000000000", "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF", "03000200-0400-0500-0006-000700080009",
	} {
		require.False(t, spec.SameUUID(none, none), "a value that identifies nothing")
	}
}

func TestNodeName(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{"m-1": "m-1", "M_1": "m-1", "gpu1.rack2": "gpu1.rack2", "-m": "", "m..1": "", "m_": "", strings.Repeat("m", 64): ""} {
		name, ok := spec.NodeName(id)
		require.Equal(t, want != "", ok, id)
		if ok {
			require.Equal(t, want, name)
		}
	}
}
