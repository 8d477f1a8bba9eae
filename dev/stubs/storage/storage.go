// Package storage has the part of the Google Cloud Storage client that the Temporal server's
// archiver names. No client can be made, and each call returns an error.
package storage

import (
	"context"
	"errors"

	"google.golang.org/api/option"
)

// ScopeFullControl is the permission that the archiver asks for.
const ScopeFullControl = "https://www.googleapis.com/auth/devstorage.full_control"

var errLeftOut = errors.New("archival to Google Cloud Storage is left out of this development server: see dev/stubs")

type (
	// Client cannot be made.
	Client struct{}
	// BucketHandle is a bucket of a Client.
	BucketHandle struct{}
	// ObjectHandle is an object of a BucketHandle.
	ObjectHandle struct{}
	// ObjectIterator lists objects of a BucketHandle.
	ObjectIterator struct{}
	// Writer writes an object.
	Writer struct{}
	// Reader reads an object.
	Reader struct{}
	// Query selects objects.
	Query struct{ Prefix string }
	// ObjectAttrs describe an object.
	ObjectAttrs struct{ Name string }
	// BucketAttrs describe a bucket.
	BucketAttrs struct{}
)

// NewClient returns an error.
func NewClient(context.Context, ...option.ClientOption) (*Client, error) { return nil, errLeftOut }

func (*Client) Bucket(string) *BucketHandle                           { return &BucketHandle{} }
func (*BucketHandle) Attrs(context.Context) (*BucketAttrs, error)     { return nil, errLeftOut }
func (*BucketHandle) Object(string) *ObjectHandle                     { return &ObjectHandle{} }
func (*BucketHandle) Objects(context.Context, *Query) *ObjectIterator { return &ObjectIterator{} }
func (*ObjectHandle) Attrs(context.Context) (*ObjectAttrs, error)     { return nil, errLeftOut }
func (*ObjectHandle) NewWriter(context.Context) *Writer               { return &Writer{} }
func (*ObjectHandle) NewReader(context.Context) (*Reader, error)      { return nil, errLeftOut }
func (*ObjectIterator) Next() (*ObjectAttrs, error)                   { return nil, errLeftOut }
func (*Writer) Write([]byte) (int, error)                             { return 0, errLeftOut }
func (*Writer) Close() error                                          { return errLeftOut }
func (*Writer) CloseWithError(error) error                            { return errLeftOut }
func (*Reader) Read([]byte) (int, error)                              { return 0, errLeftOut }
func (*Reader) Close() error                                          { return errLeftOut }
