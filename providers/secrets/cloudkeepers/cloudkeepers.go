// Package cloudkeepers links the remote keepers into a program: HashiCorp Vault
// (hashivault://), AWS KMS (awskms://) and Google Cloud KMS (gcpkms://). A
// program imports it for its effect alone; they are apart from package secrets
// because they bring three vendors' clients along.
package cloudkeepers

import (
	_ "gocloud.dev/secrets/awskms"     // registers awskms://
	_ "gocloud.dev/secrets/gcpkms"     // registers gcpkms://
	_ "gocloud.dev/secrets/hashivault" // registers hashivault://
)
