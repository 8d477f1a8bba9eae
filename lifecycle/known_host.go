package lifecycle

import "fmt"

const sshPort = 22

// KnownHostsLine returns the line of a file of known_hosts that makes OpenSSH accept a server at an
// address only with this public key: the pattern of the host, and the key.
func KnownHostsLine(host string, port int, publicKey string) string {
	if port != sshPort {
		host = fmt.Sprintf("[%s]:%d", host, port)
	}
	return host + " " + publicKey
}
