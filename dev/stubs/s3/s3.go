// Package s3 has the part of the AWS S3 client that the Temporal server's archiver names. Each call
// returns an error.
package s3

import (
	"context"
	"errors"
	"io"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

var errLeftOut = errors.New("archival to S3 is left out of this development server: see dev/stubs")

type (
	// Options are the settings of a Client.
	Options struct {
		BaseEndpoint *string
		UsePathStyle bool
	}
	// Client can do nothing.
	Client struct{}

	HeadBucketInput    struct{ Bucket *string }
	HeadBucketOutput   struct{}
	HeadObjectInput    struct{ Bucket, Key *string }
	HeadObjectOutput   struct{}
	GetObjectInput     struct{ Bucket, Key *string }
	GetObjectOutput    struct{ Body io.ReadCloser }
	PutObjectOutput    struct{}
	ListObjectsV2Input struct {
		Bucket, Prefix, Delimiter, ContinuationToken *string
		MaxKeys                                      *int32
	}
	ListObjectsV2Output struct {
		Contents              []types.Object
		CommonPrefixes        []types.CommonPrefix
		IsTruncated           *bool
		NextContinuationToken *string
	}
	PutObjectInput struct {
		Bucket, Key *string
		Body        io.Reader
	}
)

// NewFromConfig returns a Client whose calls all fail.
func NewFromConfig(aws.Config, ...func(*Options)) *Client { return &Client{} }

func (*Client) HeadBucket(context.Context, *HeadBucketInput, ...func(*Options)) (*HeadBucketOutput, error) {
	return nil, errLeftOut
}

func (*Client) HeadObject(context.Context, *HeadObjectInput, ...func(*Options)) (*HeadObjectOutput, error) {
	return nil, errLeftOut
}

func (*Client) GetObject(context.Context, *GetObjectInput, ...func(*Options)) (*GetObjectOutput, error) {
	return nil, errLeftOut
}

func (*Client) PutObject(context.Context, *PutObjectInput, ...func(*Options)) (*PutObjectOutput, error) {
	return nil, errLeftOut
}

func (*Client) ListObjectsV2(context.Context, *ListObjectsV2Input, ...func(*Options)) (*ListObjectsV2Output, error) {
	return nil, errLeftOut
}
