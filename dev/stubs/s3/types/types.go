// Package types has the part of the S3 client's types that the Temporal server's archiver names.
package types

type (
	// NoSuchBucket is an error that no call here returns.
	NoSuchBucket struct{}
	// NoSuchKey is an error that no call here returns.
	NoSuchKey struct{}
	// Object is a listed object.
	Object struct{ Key *string }
	// CommonPrefix is a listed folder.
	CommonPrefix struct{ Prefix *string }
)

func (*NoSuchBucket) Error() string { return "NoSuchBucket" }
func (*NoSuchKey) Error() string    { return "NoSuchKey" }
