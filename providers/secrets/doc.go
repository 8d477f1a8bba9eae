// Package secrets keeps secrets sealed in the database (providers.Secrets).
//
// A value is sealed in an envelope: a fresh AES-256-GCM key for each version
// encrypts the value, and a keeper (a local key file, HashiCorp Vault, AWS KMS
// or Google Cloud KMS) encrypts that key. So a value may be larger than what a
// KMS takes, and the database alone reveals nothing.
//
// A sealed value is bound to its place: the name is associated data of the encryption, so a row
// copied to another name does not open; the newest version at the time of sealing is stored inside,
// so a value does not open as that version or an older one. This does not prevent a rollback:
// somebody who may write to the database can still delete a newer version or put an older one in
// its place.
//
// Which keepers may open a value is configuration, never the row: only the
// current keeper and the previous ones named at Open are used, since a row that
// chose its own keeper could be forged by whoever owns that keeper.
//
// The fingerprint stored beside a value lets Put see that the newest version
// already holds it. It is HMAC-SHA-256 over name and value under a random key
// of its own, itself a sealed row with a reserved name: without that key the
// fingerprint of a weak password cannot be guessed from the database, and the
// same password under two names looks different.
package secrets
