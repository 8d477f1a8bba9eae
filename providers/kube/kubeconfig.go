package kube

import (
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-cloud/slipway/providers"
)

const maxKubeconfig = 64 << 10

// login is what is taken of a kubeconfig.
type login struct {
	ca        []byte
	token     string
	cert, key []byte
}

// readKubeconfig reads the current context of a kubeconfig. A kubeconfig that would run a program,
// read a file, weaken TLS or speak for somebody else is refused. The address in it is not used.
func readKubeconfig(secret providers.Secret) (login, error) {
	refuse := func(why string) (login, error) {
		return login{}, failure(providers.KindInvalid, "kubeconfig", 0, "the kubeconfig %s", why)
	}
	raw := []byte(secret.Reveal())
	var config clientcmdv1.Config
	if len(raw) > maxKubeconfig || yaml.UnmarshalStrict(raw, &config) != nil {
		return refuse("is not readable; store one of at most 64 KiB")
	}
	var cluster *clientcmdv1.Cluster
	var user *clientcmdv1.AuthInfo
	for _, c := range config.Contexts {
		if c.Name != config.CurrentContext {
			continue
		}
		for i := range config.Clusters {
			if config.Clusters[i].Name == c.Context.Cluster {
				cluster = &config.Clusters[i].Cluster
			}
		}
		for i := range config.AuthInfos {
			if config.AuthInfos[i].Name == c.Context.AuthInfo {
				user = &config.AuthInfos[i].AuthInfo
			}
		}
	}
	switch {
	case cluster == nil || user == nil:
		return refuse("has no current context with a cluster and a user")
	case cluster.InsecureSkipTLSVerify, cluster.ProxyURL != "", cluster.TLSServerName != "", cluster.CertificateAuthority != "":
		return refuse("must name its CA inline, in certificate-authority-data, and neither a proxy nor another server name")
	case user.Exec != nil, user.AuthProvider != nil:
		return refuse("must not run a program")
	case user.ClientCertificate != "", user.ClientKey != "", user.TokenFile != "":
		return refuse("must hold its login inline, and name no files")
	case user.Impersonate != "", user.ImpersonateUID != "", len(user.ImpersonateGroups) > 0, len(user.ImpersonateUserExtra) > 0, user.Username != "", user.Password != "":
		return refuse("must log in by a token or a client certificate, as itself")
	}
	l := login{cluster.CertificateAuthorityData, user.Token, user.ClientCertificateData, user.ClientKeyData}
	if l.token == "" && (len(l.cert) == 0 || len(l.key) == 0) {
		return refuse("has neither a token nor a client certificate with its key")
	}
	return l, nil
}
