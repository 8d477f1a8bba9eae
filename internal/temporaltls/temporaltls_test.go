package temporaltls

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/slipway-cloud/slipway/assembly/devserver/temporal"
	"github.com/slipway-cloud/slipway/internal/temporalx"
)

func folders(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"ca", "server", "client"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o755))
	}
	return dir
}

func read(t *testing.T, path ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(path...))
	require.NoError(t, err)
	return string(b)
}

func TestEnsure(t *testing.T) {
	t.Parallel()
	dir, now, names := folders(t), time.Now(), []string{"temporal", "127.0.0.1"}
	require.NoError(t, Ensure(dir, names, now))
	ca, server, client := read(t, dir, "ca", CAFile), read(t, dir, "server", CertFile), read(t, dir, "client", CertFile)
	info, err := os.Stat(filepath.Join(dir, "ca", caKey))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	require.NoError(t, Ensure(dir, names, now.Add(renewBefore-time.Hour)))
	require.Equal(t, []string{server, client}, []string{read(t, dir, "server", CertFile), read(t, dir, "client", CertFile)}, "repeated, it changes nothing")
	require.NoError(t, Ensure(dir, append(names, "temporal.example.com"), now))
	require.NotEqual(t, server, read(t, dir, "server", CertFile), "a new name")
	require.Equal(t, client, read(t, dir, "client", CertFile))
	require.NoError(t, os.Remove(filepath.Join(dir, "client", KeyFile)))
	require.NoError(t, Ensure(dir, names, now))
	require.NotEqual(t, client, read(t, dir, "client", CertFile), "its key was lost")
	server = read(t, dir, "server", CertFile)
	require.NoError(t, Ensure(dir, names, now.Add(renewBefore+time.Hour)))
	require.NotEqual(t, server, read(t, dir, "server", CertFile), "less than a year is left")
	require.Equal(t, ca, read(t, dir, "ca", CAFile), "the authority stays")

	require.NoError(t, os.Remove(filepath.Join(dir, "ca", caKey)))
	require.ErrorContains(t, Ensure(dir, names, now), "restore both files", "half an authority is never replaced")
	require.ErrorContains(t, Ensure(t.TempDir(), names, now), "must exist and be writable")
}

func TestClient_RefusesHalfAConfiguration(t *testing.T) {
	t.Parallel()
	dir := folders(t)
	require.NoError(t, Ensure(dir, []string{"temporal"}, time.Now()))
	ca, cert, key := filepath.Join(dir, "client", CAFile), filepath.Join(dir, "client", CertFile), filepath.Join(dir, "client", KeyFile)
	for want, o := range map[string]ClientOptions{
		"temporal.tls.ca_file: open":            {CAFile: "/no/such/file"},
		"ca_file holds no PEM certificate":      {CAFile: key},
		"cert_file and key_file: open":          {CAFile: ca, CertFile: cert},
		"private key does not match public key": {CAFile: ca, CertFile: cert, KeyFile: filepath.Join(dir, "server", KeyFile)},
	} {
		_, err := Client(o)
		require.ErrorContains(t, err, want)
	}
}

// front ends mutual TLS with the server's certificate in dir and forwards to address.
func front(t *testing.T, dir, address string) string {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "server", CertFile), filepath.Join(dir, "server", KeyFile))
	require.NoError(t, err)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM([]byte(read(t, dir, "server", CAFile))))
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12,
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer in.Close()
				out, err := net.Dial("tcp", address)
				if err != nil {
					return
				}
				defer out.Close()
				go func() { _, _ = io.Copy(in, out); _ = in.Close() }()
				_, _ = io.Copy(out, in)
			}()
		}
	}()
	return l.Addr().String()
}

func TestMutualTLSToTemporal(t *testing.T) {
	t.Parallel()
	server, err := temporal.Acquire(t.Context(), "SLIPWAY_TEMPORAL_ADDRESS", temporal.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	dir, foreign := folders(t), folders(t)
	for _, d := range []string{dir, foreign} {
		require.NoError(t, Ensure(d, []string{"temporal"}, time.Now()))
	}
	address := front(t, dir, server.Address())
	ask := func(o ClientOptions) (client.Client, func() error) {
		config, err := Client(o)
		require.NoError(t, err)
		c, err := temporalx.Dial(temporalx.ClientOptions{Address: address, Namespace: temporal.Namespace, TLS: config})
		require.NoError(t, err)
		t.Cleanup(c.Close)
		return c, func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			_, err := c.CheckHealth(ctx, &client.CheckHealthRequest{})
			return err
		}
	}
	good := ClientOptions{
		CAFile: filepath.Join(dir, "client", CAFile), CertFile: filepath.Join(dir, "client", CertFile),
		KeyFile: filepath.Join(dir, "client", KeyFile), ServerName: "temporal",
	}
	_, health := ask(good)
	require.NoError(t, health())
	for name, change := range map[string]func(*ClientOptions){
		"no certificate":    func(o *ClientOptions) { o.CertFile, o.KeyFile = "", "" },
		"another name":      func(o *ClientOptions) { o.ServerName = "temporal.example.com" },
		"another authority": func(o *ClientOptions) { o.CAFile = filepath.Join(foreign, "client", CAFile) },
	} {
		o := good
		change(&o)
		_, health := ask(o)
		require.Error(t, health(), name)
	}

	// A certificate that is replaced counts for the next connection, without a restart.
	renewed := good
	renewed.CertFile, renewed.KeyFile = filepath.Join(foreign, "client", CertFile), filepath.Join(foreign, "client", KeyFile)
	_, health = ask(renewed)
	require.Error(t, health(), "a certificate of another authority")
	for _, name := range []string{KeyFile, CertFile} {
		require.NoError(t, os.WriteFile(filepath.Join(foreign, "client", name), []byte(read(t, dir, "client", name)), 0o600))
	}
	require.Eventually(t, func() bool { return health() == nil }, time.Minute, 100*time.Millisecond)
}
